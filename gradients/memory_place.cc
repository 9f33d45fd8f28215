#include "lockstep/gradients/memory_place.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
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

}  // namespace lockstep::internal_gradients
