// Makes PinnedMemory with given functions of CUDA's driver. Internal.
#ifndef LOCKSTEP_LOADER_CUDA_MEMORY_H_
#define LOCKSTEP_LOADER_CUDA_MEMORY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"

namespace lockstep {

class PinnedMemory;
struct PinnedMemoryOptions;

namespace internal_gpu {
struct CudaApi;
}  // namespace internal_gpu

namespace internal_loader {

// Does what PinnedMemory::Create does if there is a device. `cuda` must outlive
// the memory.
absl::StatusOr<std::shared_ptr<PinnedMemory>> MakeCudaMemory(
    const internal_gpu::CudaApi& cuda, const PinnedMemoryOptions& options);

}  // namespace internal_loader
}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_CUDA_MEMORY_H_
