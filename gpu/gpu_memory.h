// Memory of a GPU with an owner. Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::shared_ptr<void> memory,
//                             AllocateOn(gpu, bytes));
#ifndef LOCKSTEP_GPU_GPU_MEMORY_H_
#define LOCKSTEP_GPU_GPU_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/gpu/gpu.h"

namespace lockstep::internal_gpu {

// Allocates memory that is 0. Its owner keeps `gpu`, and may be destroyed on
// any thread: CUDA then waits for all work of the device. A forked process, in
// which CUDA must not be called, leaves the memory alone. RESOURCE_EXHAUSTED if
// the device has not enough.
absl::StatusOr<std::shared_ptr<void>> AllocateOn(std::shared_ptr<const Gpu> gpu,
                                                 int64_t bytes);

}  // namespace lockstep::internal_gpu

#endif  // LOCKSTEP_GPU_GPU_MEMORY_H_
