// The transport between hosts, over TCP. It uses Gloo's connections, but its
// own schedules: they can be cancelled, reduce in the order of ranks, and keep
// operations that differ apart.
//
// If a stranger connects to its ports while ranks connect, it may take the
// stranger for a rank, and the group then fails. So TransportContext::address
// should be in a network that only the job uses.
#ifndef LOCKSTEP_COLLECTIVE_GLOO_GLOO_TRANSPORT_H_
#define LOCKSTEP_COLLECTIVE_GLOO_GLOO_TRANSPORT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// Makes the transport of one rank, which listens at context.address: an address
// or a name of this host. INVALID_ARGUMENT if it is neither. The transport has
// one thread, and a connection to each other rank.
absl::StatusOr<std::unique_ptr<Transport>> MakeGlooTransport(
    const TransportContext& context);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_GLOO_GLOO_TRANSPORT_H_
