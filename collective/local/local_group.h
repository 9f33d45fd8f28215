// A group whose ranks are threads of this process: for tests, for jobs of one
// process, and as the reference of what every backend must do. No thread of its
// own, no socket; the same bits in every run.
//
//   LocalGroupOptions options;
//   options.size = 4;
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       std::vector<std::unique_ptr<Communicator>> ranks,
//       MakeLocalGroup(options));
//   // Each thread takes one of them.
//
// The rank that comes last does the work of an operation, for all, while it
// issues it; one at a time of the group and all that were split off it. A
// deadline is noticed by whoever waits for any operation, or issues one. A rank
// that drops its communicator while operations are pending, whose memory may
// then go, fails the group.
#ifndef LOCKSTEP_COLLECTIVE_LOCAL_LOCAL_GROUP_H_
#define LOCKSTEP_COLLECTIVE_LOCAL_LOCAL_GROUP_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"

namespace lockstep {

struct LocalGroupOptions {
  // In messages.
  std::string name = "world";

  // Ranks, 1 to 4096.
  int size = 1;

  // How long an operation waits for all ranks to come.
  absl::Duration deadline = absl::Minutes(10);
};

// One communicator a rank, in the order of ranks. INVALID_ARGUMENT names the
// option that is wrong.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MakeLocalGroup(
    const LocalGroupOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_LOCAL_LOCAL_GROUP_H_
