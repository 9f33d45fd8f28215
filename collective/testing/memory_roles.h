// The roles of RankProcesses in tests and measurements of memory of a group,
// over shm.
//
//   RankProcesses ranks("stands_in_copy", 3);
//   for (int rank = 0; rank < 3; ++rank) ranks.AwaitLine(rank, "joined");
//   ranks.Signal(2, SIGKILL);
//   const FaultReport report = ParseFaultReport(ranks.Wait(0));
#ifndef LOCKSTEP_COLLECTIVE_TESTING_MEMORY_ROLES_H_
#define LOCKSTEP_COLLECTIVE_TESTING_MEMORY_ROLES_H_

#include <map>
#include <string>

#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/testing/rank_processes.h"

namespace lockstep {

// Returns the roles by name:
//
//   stands_in_reduce   reduce 6 MiB of group memory some times; print "joined",
//                      and reduce once more, with `deadline`. The last rank
//                      prints "joined" and waits for Go where it is about to
//                      read the others' memory: to reduce it, or, as
//   stands_in_copy     "stands_in_copy", to copy results. After a failure, a
//                      rank looks whether another one has changed its input,
//                      overwrites its memory, and prints its report. With an
//                      argument, the deadline is far away; with "abort", rank
//                      0 aborts after Go.
//   no_memory_files    allocate memory, where rank 1 can open no more files;
//                      reduce it; print why it is not shared
//   no_addresses       the same, but rank 0 has addresses for its own memory
//                      alone
//   allocates          allocate memory, use it and release it, 1,000 times;
//                      print what grew (held.h), or "nothing is left over"
std::map<std::string, RankProcesses::Role> MemoryRoles(absl::Duration deadline);

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_MEMORY_ROLES_H_
