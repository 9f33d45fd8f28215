// The transport between hosts, over TCP: Gloo's connections under schedules of
// our own, which can be cancelled, reduce in the order of ranks, and never let
// operations that differ meet.
//
// A stranger who connects to its ports while ranks connect may be taken for
// one, and the group then fails: TransportContext::address should be of a
// network that the job has for itself.
#ifndef LOCKSTEP_COLLECTIVE_GLOO_GLOO_TRANSPORT_H_
#define LOCKSTEP_COLLECTIVE_GLOO_GLOO_TRANSPORT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// Listens at context.address, which is an address or a name of this host;
// INVALID_ARGUMENT if it is neither. Has one thread, and a connection to each
// other rank.
absl::StatusOr<std::unique_ptr<Transport>> MakeGlooTransport(
    const TransportContext& context);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_GLOO_GLOO_TRANSPORT_H_
