// The transport between processes of one host, over memory that they share.
//
// An all-reduce of little takes about as long as two processors need to see
// each other's writes; one of much, as long as memory needs to take its bytes.
//
// Nothing is left behind by a process that is killed: the memory has no name.
#ifndef LOCKSTEP_COLLECTIVE_SHM_SHM_TRANSPORT_H_
#define LOCKSTEP_COLLECTIVE_SHM_SHM_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// Ranks are processes, or threads, that have the same ShmNeighbourhood: 1024 at
// most. RESOURCE_EXHAUSTED tells the bytes that could not be had.
absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransport(
    const TransportContext& context);

// The same, for tests of counters that wrap around: steps and the bytes of
// messages are counted from `count` on, a multiple of 16, and not from 0. All
// ranks give the same.
absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransportCountingFrom(
    uint32_t count, const TransportContext& context);

// What ranks must have in common to share memory: the host, the process
// namespace and the user.
absl::StatusOr<std::string> ShmNeighbourhood();

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_SHM_SHM_TRANSPORT_H_
