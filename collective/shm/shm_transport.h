// The transport between processes of one host, over memory that they share.
//
// A small all-reduce takes about as long as two processors need to see each
// other's writes. A large one takes as long as memory needs to take its bytes.
//
// A process that is killed leaves nothing behind, since the memory has no name.
#ifndef LOCKSTEP_COLLECTIVE_SHM_SHM_TRANSPORT_H_
#define LOCKSTEP_COLLECTIVE_SHM_SHM_TRANSPORT_H_

#include <cstdint>
#include <functional>
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

// A test may change these.
struct ShmTesting {
  // Steps and the bytes of messages are counted from here, a multiple of 16
  // that is the same on all ranks, so that they soon wrap around.
  uint32_t count = 0;
  // If true, small operations take data that ranks have lent where they lie,
  // too. It is the same on all ranks.
  bool lends_all = false;
  // Called with the rank before it reads data that others have lent: to reduce
  // them, or to copy results.
  enum class Reads { kToReduce, kToCopy };
  std::function<void(int rank, Reads reads)> before_read = nullptr;
};
absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransportFor(
    const ShmTesting& testing, const TransportContext& context);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_SHM_SHM_TRANSPORT_H_
