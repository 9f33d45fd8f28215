#include "lockstep/gradients/gradient_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/gpu.h"
#include "lockstep/gpu/stream.h"

namespace lockstep::internal_gradients {
namespace {

internal_gpu::CudaStream* HandleOf(Stream stream) {
  return static_cast<internal_gpu::CudaStream*>(stream.handle());
}

}  // namespace

absl::StatusOr<MemoryPlace> MemoryPlace::Open(Device device, Stream stream,
                                              const std::string& cuda_library) {
  MemoryPlace place(device, stream);
  if (device.kind == Device::Kind::kHost) return place;
  LOCKSTEP_ASSIGN_OR_RETURN(const internal_gpu::CudaApi* const cuda,
                            internal_gpu::LoadCuda(cuda_library));
  LOCKSTEP_ASSIGN_OR_RETURN(auto gpu,
                            internal_gpu::Gpu::Open(*cuda, device.ordinal));
  place.gpu_ = std::shared_ptr<const internal_gpu::Gpu>(
      gpu.release(), [guard = ForkGuard()](const internal_gpu::Gpu* opened) {
        std::unique_ptr<const internal_gpu::Gpu> owned(opened);
        // A forked process must not call CUDA.
        if (guard.forked()) KeepForEver(std::move(owned));
      });
  return place;
}

absl::Status MemoryPlace::SetToZero(void* data, int64_t bytes) const {
  if (bytes == 0) return absl::OkStatus();
  if (gpu_ == nullptr) {
    std::memset(data, 0, bytes);
    return absl::OkStatus();
  }
  return gpu_->InContext([&] {
    return gpu_->Check(
        gpu_->cuda().MemsetD8Async(data, 0, bytes, HandleOf(stream_)),
        "cuMemsetD8Async");
  });
}

absl::Status MemoryPlace::Copy(const void* from, void* to,
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

absl::Status MemoryPlace::Await() const {
  if (gpu_ == nullptr) return absl::OkStatus();
  return gpu_->InContext([&] {
    return gpu_->Check(gpu_->cuda().StreamSynchronize(HandleOf(stream_)),
                       "cuStreamSynchronize");
  });
}

absl::StatusOr<std::unique_ptr<GradientMemory>> GradientMemory::Create(
    const MemoryPlace& place, Communicator& group, int64_t bytes,
    const CallOptions& call) {
  std::unique_ptr<GradientMemory> memory(new GradientMemory(place, bytes));
  if (place.gpu_ == nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(memory->on_host_, group.Allocate(bytes, call));
    memory->data_ = static_cast<char*>(memory->on_host_.data());
    return memory;
  }
  const internal_gpu::Gpu& gpu = *place.gpu_;
  void* allocated = nullptr;
  const absl::Status status = gpu.InContext([&] {
    return gpu.Check(
        gpu.cuda().MemAlloc(&allocated, std::max<int64_t>(bytes, 1)),
        "cuMemAlloc");
  });
  if (!status.ok()) {
    return Annotate(status,
                    absl::StrCat("memory for gradients of ", bytes, " bytes"));
  }
  memory->data_ = static_cast<char*>(allocated);
  LOCKSTEP_RETURN_IF_ERROR(place.SetToZero(allocated, bytes));
  return memory;
}

GradientMemory::~GradientMemory() {
  const bool is_none =
      place_.gpu_ == nullptr || data_ == nullptr || fork_guard_.forked();
  if (is_none) return;
  const internal_gpu::Gpu& gpu = *place_.gpu_;
  gpu.InContext(
         [&] { return gpu.Check(gpu.cuda().MemFree(data_), "cuMemFree"); })
      .IgnoreError();
}

}  // namespace lockstep::internal_gradients
