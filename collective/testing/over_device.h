// Runs code that uses host memory, such as conformance.h, on a transport that
// takes only device memory:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const CudaApi* cuda, LoadCuda(""));
//   GroupOptions options;
//   options.backend = "nccl";
//   options.transport = OverDevice(
//       [](const TransportContext& context) {
//         return MakeTransport("nccl", context);
//       },
//       cuda, ordinal);
//
// Inputs are copied to the device when an operation is issued. Outputs are
// copied back when the device is done with it.
#ifndef LOCKSTEP_COLLECTIVE_TESTING_OVER_DEVICE_H_
#define LOCKSTEP_COLLECTIVE_TESTING_OVER_DEVICE_H_

#include "lockstep/base/language.h"
#include "lockstep/collective/transport.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep {

// Returns a function that makes a DeviceTransport which takes host memory. The
// DeviceTransport that `inner` makes does the work, and gets memory of device
// `ordinal`. The function returns INVALID_ARGUMENT if there is no such device,
// and CUDA's other errors.
TransportFactory OverDevice(TransportFactory inner,
                            const internal_gpu::CudaApi* cuda, int ordinal);

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_OVER_DEVICE_H_
