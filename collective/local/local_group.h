// A local group's ranks are threads of this process. It is for tests and for
// jobs of one process, and it is the reference for the behaviour of every
// backend. It has no socket, and every run gives the same bits.
//
//   LocalGroupOptions options;
//   options.size = 4;
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       std::vector<std::unique_ptr<Communicator>> ranks,
//       MakeLocalGroup(options));
//   // Each thread takes one of them.
//
// The rank that comes last to an operation does it for all ranks while it
// issues it. So one thread may also issue the operations of all ranks, one
// after the other: they are done then. The group has no thread and no
// descriptor. The deadline of an operation is noticed while the rank that
// issued it waits for any operation of the same group, or when that rank asks
// whether the operation is done.
//
// local_world.h gives each rank a World, for the test of a trainer.
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

// The options of a local group.
struct LocalGroupOptions {
  // The name of the group in messages.
  std::string name = "world";

  // The number of ranks, 1 to 4096.
  int size = 1;

  // The longest time that an operation waits for all ranks to come.
  absl::Duration deadline = absl::Minutes(10);
};

// Returns one communicator for each rank, in the order of ranks.
// INVALID_ARGUMENT names the option that is wrong. Returns RESOURCE_EXHAUSTED
// if memory has run out.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MakeLocalGroup(
    const LocalGroupOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_LOCAL_LOCAL_GROUP_H_
