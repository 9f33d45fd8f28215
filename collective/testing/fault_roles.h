// What ranks do where faults are tested and measured: the roles of
// RankProcesses, and what they print.
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

// Of groups; the argument is the backend:
//
//   barriers           print "joined"; barriers until one fails
//   has_child          the same of a rank that forks; the child lives until Go
//   deadline_barrier   some barriers; print "ready"; after Go, a barrier with a
//                      deadline
//   patient_barrier    the same, but rank 0 alone has that deadline: its
//                      verdict ends the others' barriers
//   abort_unheard      the same, but after Go rank 1 aborts
//   aborts             rank 1 aborts, the others are in a barrier
//   leaves             rank 1 leaves, the others are in a barrier
//   kind, dtype, counts, reduce_op, root, name
//                      an operation in which rank 0 differs in that
//   ended_dtype, ended_reduce_op, ended_name
//                      the same of a device that ends it well; print "ready";
//                      after Go they leave
//   group_order        barriers of two groups, at rank 0 in another order
//   no_memory          rank 1 can allocate no more, and all reduce 20 MB
//   no_files           rank 1 can open no more, and all make a group
//   scanned            all make a group while their ports are scanned, and end
//                      well or are told of a connection that failed
//   again              the group is aborted and made again, 100 times; print
//                      what grew (held.h), or "nothing is left over"
//   growth             the same; print what it grew by: "FILES THREADS KIB"
//
// Without an argument:
//
//   idle_strangers     join a rank 0 to whom 300 have connected before, who say
//                      nothing
//   hidden_memory      make a group of shm whose ranks may not open each
//                      other's memory
//
// These are roles of the rendezvous. All print "ready", and after Go they join,
// for `join`; or, as "patient_absent" and so on, rank 0 for `patient_join`, and
// the others until it has given up:
//
//   absent             but for the rank that is the argument
//   wrong_token        rank 1 comes with another token
//   duplicate          rank 2 says that it is rank 1
//   other_size         rank 1 says that it is one of more
//   other_job          rank 1 has rank 0's address, and is of another job
//   other_version      rank 1 speaks another version of the protocol
//   join_at            at the argument, "host:port"
std::map<std::string, RankProcesses::Role> FaultRoles(
    const FaultDeadlines& deadlines = {});

// Of a rank: prints "ready", and waits for Go.
void AwaitGo(const RankProcesses::Self& self);

// Waits until all are "ready".
void AwaitReady(RankProcesses& ranks, int size);

// Lets ranks that are "ready" go on.
void Go(const RankProcesses& ranks);

// How the operation that a rank prints came about: "STATUS | ISSUED |
// ANSWERED".
struct FaultReport {
  std::string status;
  // By ClockSeconds(); for the rank that aborts, when it did.
  double issued = 0;
  double answered = 0;
};

// Of the last line that is one; otherwise it is empty, and fails the test.
FaultReport ParseFaultReport(absl::string_view printed);

// What ranks report that are threads of this process: of `aborts` to `name`
// above, or of a deadline_barrier to which the rank `absent` does not come.
std::map<int, FaultReport> FaultOfThreads(const std::string& role, int size,
                                          int absent = -1);

// A reading of the clock that nobody sets, which all processes of a host share.
double ClockSeconds();

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_FAULT_ROLES_H_
