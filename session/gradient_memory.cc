#include "lockstep/session/gradient_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/gpu.h"
#include "lockstep/gpu/stream.h"

namespace lockstep::internal_session {
namespace {

internal_gpu::CudaStream* HandleOf(Stream stream) {
  return static_cast<internal_gpu::CudaStream*>(stream.handle());
}

}  // namespace

absl::StatusOr<std::unique_ptr<GradientMemory>> GradientMemory::Create(
    int64_t floats, Device device, Stream stream,
    const std::string& cuda_library) {
  std::unique_ptr<GradientMemory> memory(new GradientMemory(device, stream));
  if (device.kind == Device::Kind::kHost) {
    LOCKSTEP_RETURN_IF_ERROR(CatchAll("memory for gradients", [&] {
      memory->on_host_.resize(floats);
      return absl::OkStatus();
    }));
    memory->data_ = memory->on_host_.data();
    return memory;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const internal_gpu::CudaApi* const cuda,
                            internal_gpu::LoadCuda(cuda_library));
  LOCKSTEP_ASSIGN_OR_RETURN(memory->gpu_,
                            internal_gpu::Gpu::Open(*cuda, device.ordinal));
  const size_t bytes = std::max<int64_t>(floats, 1) * sizeof(float);
  void* allocated = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(memory->gpu_->InContext([&] {
    return memory->gpu_->Check(cuda->MemAlloc(&allocated, bytes), "cuMemAlloc");
  }));
  memory->data_ = static_cast<float*>(allocated);
  return memory;
}

GradientMemory::~GradientMemory() {
  if (gpu_ == nullptr) return;
  if (fork_guard_.forked()) {
    // A forked process must not call CUDA.
    KeepForEver(std::move(gpu_));
    return;
  }
  gpu_->InContext([this] {
        return gpu_->Check(gpu_->cuda().MemFree(data_), "cuMemFree");
      })
      .IgnoreError();
}

absl::Status GradientMemory::SetToZero(int64_t floats) {
  if (gpu_ == nullptr) {
    std::fill_n(data_, floats, 0.F);
    return absl::OkStatus();
  }
  if (floats == 0) return absl::OkStatus();
  return gpu_->InContext([&] {
    return gpu_->Check(gpu_->cuda().MemsetD8Async(
                           data_, 0, floats * sizeof(float), HandleOf(stream_)),
                       "cuMemsetD8Async");
  });
}

absl::Status GradientMemory::Copy(const void* from, void* to,
                                  int64_t bytes) const {
  if (bytes == 0) return absl::OkStatus();
  if (gpu_ == nullptr) {
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  return gpu_->InContext([&] {
    return gpu_->Check(
        gpu_->cuda().MemcpyAsync(to, from, bytes, HandleOf(stream_)),
        "cuMemcpyAsync");
  });
}

absl::Status GradientMemory::Await() const {
  if (gpu_ == nullptr) return absl::OkStatus();
  return gpu_->InContext([&] {
    return gpu_->Check(gpu_->cuda().StreamSynchronize(HandleOf(stream_)),
                       "cuStreamSynchronize");
  });
}

}  // namespace lockstep::internal_session
