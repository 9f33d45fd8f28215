// The roles of RankProcesses in tests and measurements of faults, and the lines
// that they print.
//
//   RankProcesses ranks("barriers", 4, "shm");
//   for (int rank = 0; rank < 4; ++rank) ranks.AwaitLine(rank, "joined");
//   ranks.Signal(3, SIGKILL);
//   const FaultReport report = ParseFaultReport(ranks.Wait(0));
//   // report.status: "UNAVAILABLE: ... rank 3 (trainer-0, pid 4711) ..."
#ifndef LOCKSTEP_COLLECTIVE_TESTING_FAULT_ROLES_H_
#define LOCKSTEP_COLLECTIVE_TESTING_FAULT_ROLES_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/testing/rank_processes.h"

namespace lockstep {

// The deadlines of the roles below. Each of them is expected to expire.
struct FaultDeadlines {
  absl::Duration barrier = absl::Seconds(1);
  absl::Duration join = absl::Seconds(1);
  absl::Duration patient_join = absl::Seconds(1);
};

// Returns the roles by name.
//
// These are roles of groups. The argument is the backend:
//
//   barriers           print "joined"; do barriers until one fails
//   has_child          the same, with a fork first; the child lives until Go
//   core               the same as barriers; at SIGUSR1, rank 3 has no memory
//                      for a small object, and 4 GiB for its core file
//   deadline_barrier   do some barriers; print "ready"; after Go, do a barrier
//                      with a deadline
//   patient_barrier    the same, but only rank 0 has that deadline, and its
//                      verdict ends the other ranks' barriers
//   abort_unheard      the same, but after Go rank 1 aborts
//   aborts             rank 1 aborts while the others are in a barrier
//   leaves             rank 1 leaves while the others are in a barrier
//   kind, dtype, counts, reduce_op, root, name
//                      do an operation in which rank 0 differs in this
//   ended_dtype, ended_reduce_op, ended_name
//                      the same on a device that ends it well; print "ready";
//                      after Go, leave
//   group_order        do barriers of two groups; rank 0 has another order
//   no_memory          reduce 20 MB; rank 1 can allocate no more memory
//   no_files           make a group; rank 1 can open no more files
//   scanned            make a group while its ports are scanned; either this
//                      ends well, or a failed connection is reported
//   again              abort the group and make it again, 100 times; print what
//                      grew (held.h), or "nothing is left over"
//   growth             the same; print the growth: "FILES THREADS KIB"
//
// These have no argument:
//
//   idle_strangers     join a rank 0 to which 300 silent clients have connected
//                      before
//   hidden_memory      make a group of shm whose ranks may not open the memory
//                      of each other
//
// These are roles of the rendezvous. All print "ready", and after Go they join,
// with the deadline `join`. As "patient_absent" and so on, rank 0 has the
// deadline `patient_join`, and the other ranks wait until it has given up:
//
//   absent             all but the rank that is the argument join
//   wrong_token        rank 1 has another token
//   duplicate          rank 2 says that it is rank 1
//   other_size         rank 1 says that there are more ranks
//   other_job          rank 1 has rank 0's address, but belongs to another job
//   other_version      rank 1 speaks another version of the protocol
//   join_at            join at the argument, "host:port"
std::map<std::string, RankProcesses::Role> FaultRoles(
    const FaultDeadlines& deadlines = {});

// Prints "ready", and waits for Go. A rank calls it.
void AwaitGo(const RankProcesses::Self& self);

// Waits until all ranks have printed "ready".
void AwaitReady(RankProcesses& ranks, int size);

// Lets ranks that have printed "ready" go on.
void Go(const RankProcesses& ranks);

// The line that a rank prints about its operation: "STATUS | ISSUED |
// ANSWERED".
struct FaultReport {
  std::string status;
  // Times by ClockSeconds(). For the rank that aborts, `issued` is the time of
  // the abort.
  double issued = 0;
  double answered = 0;
};

// Parses the last such line. If there is none, the report is empty and the test
// fails.
FaultReport ParseFaultReport(absl::string_view printed);

// Returns the last status that a rank has printed by ToString, with its blame.
// If there is none, the test fails.
absl::Status StatusIn(absl::string_view printed);

// Returns the reports of ranks that are threads of this process: for `aborts`
// to `name` above, or for a deadline_barrier to which the rank `absent` does
// not come.
std::map<int, FaultReport> FaultOfThreads(const std::string& role, int size,
                                          int absent = -1);

// Returns the time of a clock that cannot be set and is the same in all
// processes of a host.
double ClockSeconds();

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_FAULT_ROLES_H_
