// The transport between GPUs, over NCCL. Collectives are queued on the
// transport's own stream in the order in which they are launched. From then on,
// the device does them.
//
// NCCL chooses the order of reductions. All ranks get the same bits, but these
// differ from the bits of the backends for host memory. NCCL's min and max are
// NaN only if the inputs of all ranks are.
//
// NCCL reads environment variables, such as NCCL_DEBUG. They are left to the
// user.
#ifndef LOCKSTEP_COLLECTIVE_NCCL_NCCL_TRANSPORT_H_
#define LOCKSTEP_COLLECTIVE_NCCL_NCCL_TRANSPORT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// Makes the transport of the device options.device. Every rank needs its own
// device. Returns UNAVAILABLE if there is no NCCL, driver or device, and
// INVALID_ARGUMENT if there is no such device. The transport has one thread,
// and NCCL has more.
absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeNcclTransport(
    const TransportContext& context, const NcclOptions& options);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_NCCL_NCCL_TRANSPORT_H_
