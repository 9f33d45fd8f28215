// A transport for tests that moves the data of each collective to memory that
// the ranks have lent, and back. So whatever tests a transport tests the way of
// lent memory:
//
//   Ranks ranks(3, OverLentMemory());
//   RunAndCheck(ranks, job);
#ifndef LOCKSTEP_COLLECTIVE_SHM_OVER_LENT_MEMORY_H_
#define LOCKSTEP_COLLECTIVE_SHM_OVER_LENT_MEMORY_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/shm/shm_transport.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

struct OverLentMemoryOptions {
  ShmTesting shm = {/*count=*/0, /*lends_all=*/true, /*before_read=*/nullptr};
  // If it is 3, the data of one rank of three stay where they are in each
  // operation, and so on. 0: all data are moved.
  int one_stays_of = 0;
};

// Returns a function that makes such a transport of shm. It has 4 MiB of lent
// memory; larger operations stay where they are.
std::function<
    absl::StatusOr<std::unique_ptr<Transport>>(const TransportContext& context)>
OverLentMemory(const OverLentMemoryOptions& options = {});

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_SHM_OVER_LENT_MEMORY_H_
