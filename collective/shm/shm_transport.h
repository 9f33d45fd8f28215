// The transport between processes of one host, over memory that they share.
//
// A small all-reduce takes about as long as two processors need to see each
// other's writes. A large one takes as long as memory needs to take its bytes.
//
// A process that is killed leaves nothing behind, since the memory has no name.
#ifndef LOCKSTEP_COLLECTIVE_SHM_SHM_TRANSPORT_H_
#define LOCKSTEP_COLLECTIVE_SHM_SHM_TRANSPORT_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// Makes the transport of one rank. Ranks are processes, or threads, that have
// the same ShmNeighbourhood. INVALID_ARGUMENT for more than 1024 ranks, and
// RESOURCE_EXHAUSTED with the number of bytes that could not be allocated.
absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransport(
    const TransportContext& context);

// Does the same for tests of counters that wrap around: counts steps and the
// bytes of messages from `count` instead of 0.
// Requires: `count` is a multiple of 16, and the same on all ranks.
absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransportCountingFrom(
    uint32_t count, const TransportContext& context);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_SHM_SHM_TRANSPORT_H_
