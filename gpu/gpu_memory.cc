#include "lockstep/gpu/gpu_memory.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep::internal_gpu {
namespace {

// Frees memory of a GPU.
class Free {
 public:
  explicit Free(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {}

  void operator()(void* memory) {
    if (memory == nullptr) return;
    if (fork_guard_.forked()) return KeepForEver(std::move(gpu_));
    const auto free = [&] {
      return gpu_->Check(gpu_->cuda().MemFree(memory), "cuMemFree");
    };
    gpu_->InContext(free).IgnoreError();
  }

 private:
  std::shared_ptr<const Gpu> gpu_;
  ForkGuard fork_guard_;
};

// The stream is a new one, so nothing else waits for it.
absl::Status SetToZero(const Gpu& gpu, void* memory, int64_t bytes) {
  const CudaApi& cuda = gpu.cuda();
  CudaStream* stream = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(gpu.Check(
      cuda.StreamCreate(&stream, kCudaStreamNonBlocking), "cuStreamCreate"));
  absl::Status status = gpu.Check(cuda.MemsetD8Async(memory, 0, bytes, stream),
                                  "cuMemsetD8Async");
  status.Update(
      gpu.Check(cuda.StreamSynchronize(stream), "cuStreamSynchronize"));
  cuda.StreamDestroy(stream);
  return status;
}

}  // namespace

absl::StatusOr<std::shared_ptr<void>> AllocateOn(std::shared_ptr<const Gpu> gpu,
                                                 int64_t bytes) {
  std::shared_ptr<void> memory;
  LOCKSTEP_RETURN_IF_ERROR(gpu->InContext([&] {
    void* data = nullptr;
    LOCKSTEP_RETURN_IF_ERROR(
        gpu->Check(gpu->cuda().MemAlloc(&data, bytes), "cuMemAlloc"));
    memory = std::shared_ptr<void>(data, Free(gpu));
    return SetToZero(*gpu, data, bytes);
  }));
  return memory;
}

}  // namespace lockstep::internal_gpu
