// The transport between GPUs, over NCCL: collectives are queued on a stream of
// its own, in the order in which they are launched, and are the device's from
// then on.
//
// Reductions have the order that NCCL gives them: the same bits on all ranks,
// but others than those of the backends for the host, and of min and max NCCL
// returns a NaN only where all ranks have one.
//
// The environment variables that NCCL reads, such as NCCL_DEBUG, are the
// user's.
#ifndef LOCKSTEP_COLLECTIVE_NCCL_NCCL_TRANSPORT_H_
#define LOCKSTEP_COLLECTIVE_NCCL_NCCL_TRANSPORT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// Of one device, which context.device says; every rank needs one of its own.
// UNAVAILABLE where there is no NCCL, no driver or no device; INVALID_ARGUMENT
// if there is no such device. Has one thread, and more of NCCL's.
absl::StatusOr<std::unique_ptr<Transport>> MakeNcclTransport(
    const TransportContext& context);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_NCCL_NCCL_TRANSPORT_H_
