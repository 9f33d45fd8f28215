// The transport between hosts, over TCP.
//
// The thread that waits for a collective moves its data itself, so no other
// thread has to be woken. It sleeps until data have come. If the waits are
// short and the core is its own, it looks for data for some microseconds first.
#ifndef LOCKSTEP_COLLECTIVE_TCP_TCP_TRANSPORT_H_
#define LOCKSTEP_COLLECTIVE_TCP_TCP_TRANSPORT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// Makes the transport of one rank. While it connects, it listens at
// context.address: an address or a name of this host. Connect returns
// INVALID_ARGUMENT if it is neither. The transport has no thread, and two
// connections to each other rank.
absl::StatusOr<std::unique_ptr<Transport>> MakeTcpTransport(
    const TransportContext& context);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_TCP_TCP_TRANSPORT_H_
