// Runs code that uses host memory, such as conformance.h, on a backend that
// takes only device memory:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const CudaApi* cuda, LoadCuda(""));
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       std::unique_ptr<Communicator> group,
//       OverDevice(std::move(device_group), cuda, ordinal));
//   // As with any other: buffers are host memory.
//   absl::Status status = Wait(group->AllReduce(in, out, ReduceOp::kSum));
//
// Inputs are copied to the device when an operation is issued. Outputs are
// copied back by the first call that finds out that the operation has ended
// well: Wait, Done or status of this or a later operation, or the issue of
// another one.
#ifndef LOCKSTEP_COLLECTIVE_TESTING_DEVICE_COMMUNICATOR_H_
#define LOCKSTEP_COLLECTIVE_TESTING_DEVICE_COMMUNICATOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep {

// Returns a communicator with the same rank in the same group as
// `device_group`, which gets memory of device `ordinal`. Groups that are split
// off it do the same. Returns INVALID_ARGUMENT if there is no such device.
// Other errors are CUDA's.
absl::StatusOr<std::unique_ptr<Communicator>> OverDevice(
    std::unique_ptr<Communicator> device_group,
    const internal_gpu::CudaApi* cuda, int ordinal);

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_DEVICE_COMMUNICATOR_H_
