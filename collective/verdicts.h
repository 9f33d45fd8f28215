// The words and the status codes with which a group fails. Rank 0 (control/),
// the engine of a rank that does not wait for rank 0 (engine/), and the local
// backend decide why a group fails, and use these functions to say it.
//
//   Fail(verdicts::DidNotCome("barrier() #3 of group 'world'",
//                             verdicts::ListRanks({1, 2}), absl::Seconds(5),
//                             {"rank 1 has issued nothing"}));
//
// A rank is named as the caller names it, for example "rank 2" or "rank 2
// (trainer-1, pid 4711)". An operation is named as by Operation::DescribeIn.
// The examples below abbreviate both.
#ifndef LOCKSTEP_COLLECTIVE_VERDICTS_H_
#define LOCKSTEP_COLLECTIVE_VERDICTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_collective::verdicts {

// ---- Parts of verdicts.

// Returns "ranks 1, 2". If that is longer than `longest` bytes, the number of
// ranks stands before as much of it.
std::string ListRanks(const std::vector<int>& ranks,
                      size_t longest = std::string::npos);

// Returns "rank 2 last issued barrier() #15 of ...", or "rank 2 has issued
// nothing" if `operation` is "". This is what the rank has answered.
std::string DescribeLastIssued(absl::string_view rank,
                               absl::string_view operation);

// Returns "had last issued barrier() #15 of ... as of 2s ago". This is what a
// rank that does not answer has said in its last heartbeat, which came so long
// ago; "" stands for nothing.
std::string DescribeLastWords(absl::string_view issued, absl::Duration ago);

// Returns "had last issued ... as of 2s ago, and is silent for 2s", for a rank
// that does not answer. `last_words` is what DescribeLastWords returns, or ""
// if no heartbeat of the rank has come.
std::string DescribeSilence(absl::string_view last_words,
                            absl::Duration silent);

// Returns what ranks must not rely on after they differed, if a device may have
// done the operation all the same: all results from collective `number` on.
std::string ResultsAreSuspect(uint64_t number);

// ---- Ranks that do not do the same.

// A rank, and the operation that it issued, or "" if that is not known.
struct Issued {
  std::string rank;
  std::string operation;
};

// FAILED_PRECONDITION "the ranks of group 'world' differ at operation #17: rank
// 0 issued barrier(), and rank 2 issued broadcast(...)". They differ in a
// collective whose number is from `first` to `last`, or, if these are 0, in an
// operation between two ranks. `suspect` is "" or what ResultsAreSuspect
// returns.
absl::Status OperationsDiffer(absl::string_view group, uint64_t first,
                              uint64_t last, const std::vector<Issued>& issued,
                              absl::string_view suspect);

// FAILED_PRECONDITION "the ranks of group 'world' differ: rank 0 issued send(4
// x f32) to rank 1, which issued recv(5 x f32) from it".
absl::Status SendAndRecvDiffer(absl::string_view group, const Issued& send,
                               const Issued& recv);

// The numbers of elements in an all-to-all that one rank sends to another, and
// that the other takes from it.
struct CountsThatDiffer {
  std::string from, to;  // ranks
  int64_t gives = 0, takes = 0;
};

// FAILED_PRECONDITION "all_to_all(...) #3 ...: rank 0 sends 3 elements to rank
// 1, which takes 4".
absl::Status CountsDiffer(absl::string_view operation,
                          const CountsThatDiffer& counts);

// A rank, and its value of a group's property.
struct Property {
  std::string rank;
  std::string value;
};

// FAILED_PRECONDITION "the ranks differ in the backend of group 'world': rank 1
// has gloo, and rank 0 has shm". `what` is "backend", "members" or an option.
absl::Status PropertiesDiffer(absl::string_view what, absl::string_view group,
                              const Property& one, const Property& other);

// ---- Ranks that do not come.

// DEADLINE_EXCEEDED "all_reduce(...) #17 ...: ranks 1, 2 did not come within
// 10m; rank 1 last issued ...; rank 2 had last issued ...". `who` is what
// ListRanks returns, and `said` has a clause for each rank of which something
// is known.
absl::Status DidNotCome(absl::string_view operation, absl::string_view who,
                        absl::Duration deadline,
                        const std::vector<std::string>& said);

// DEADLINE_EXCEEDED "all_reduce(...) #17 ...: all ranks came, and it was not
// done within 10m; its data does not get through, or is slow". If ranks do not
// answer, `said` names them instead.
absl::Status WasNotDone(absl::string_view operation, absl::Duration deadline,
                        const std::vector<std::string>& said);

// DEADLINE_EXCEEDED "all_reduce(...) #17 ... did not end within 10m, and who is
// missing is not known: rank 0 ... is silent for 12s". A rank says this if rank
// 0 does not answer. `hub` describes rank 0's silence.
absl::Status MissingIsNotKnown(absl::string_view operation,
                               absl::Duration deadline, absl::string_view hub);

// Returns "all_reduce(...) #17 ... is slow: ranks 1, 2 have not come yet; ...",
// for on_slow. `who` is "" if no rank is missing.
std::string IsSlow(absl::string_view operation, absl::string_view who,
                   const std::vector<std::string>& said);

// An operation that waits for a rank, which waits for another operation.
struct WaitsFor {
  std::string operation;
  std::string rank;
  std::string its_operation;
};

// FAILED_PRECONDITION "ranks use groups in different orders, and wait for each
// other: A waits for rank 1, which waits for B; B waits for rank 0, which waits
// for A".
absl::Status Deadlock(const std::vector<WaitsFor>& waits);

// ---- Ranks that are gone.

// UNAVAILABLE "barrier() #4 ...: rank 2 has left the group; rank 2 last issued
// ...". `last` is what DescribeLastIssued returns, or "".
absl::Status HasLeftGroup(absl::string_view operation, absl::string_view rank,
                          absl::string_view last);

// UNAVAILABLE "rank 2 has dropped its communicator of group 'world'; rank 2
// last issued ...". The operations of the rank that have not ended end with it.
// `last` is as above.
absl::Status HasDropped(absl::string_view group, int rank,
                        absl::string_view last);

// UNAVAILABLE: a rank can't join a group that is split off one that it has
// left. The first is for ranks that have joined the group before, and the
// second for a rank that joins it later.
absl::Status LeftBeforeJoining(absl::string_view parent, int rank);
absl::Status CannotJoinAnyMore(absl::string_view parent, int rank,
                               absl::string_view group);

// UNAVAILABLE "rank 2 has left the job", if `how` is OK; otherwise the code and
// the message of `how`, which says how the rank was lost. `last_words` is "" or
// what DescribeLastWords returns. `told` is OK, or the failure that the rank
// had been told before it left. That failure may be why the rank left, so the
// result then has the blame of `told`. In all other cases, the result has the
// blame of `how`. If `how` has none, the result blames the rank, whose number
// in the job is `job_rank`.
absl::Status IsGone(absl::string_view rank, int job_rank,
                    const absl::Status& how, absl::string_view last_words,
                    const absl::Status& told);

// Appends the first rank that was lost to a failure that may be its
// consequence, which is one with the code UNAVAILABLE, and blames that rank.
// Returns `why` as it is if no rank was lost (`first_loss` is OK), or if it
// names that loss already.
absl::Status AfterFirstLoss(const absl::Status& why,
                            const absl::Status& first_loss);

// ABORTED "rank 1 aborted the group 'world': INTERNAL: loss is NaN". The result
// has the blame of `why`. If `why` has none, it blames the rank that aborts,
// whose number in the job is `job_rank`.
absl::Status Aborted(absl::string_view group, int rank, int job_rank,
                     const absl::Status& why);

// ABORTED "rank 1 (trainer-1, pid 4711) has aborted the job: NOT_FOUND: no
// device 3". The blame is as in Aborted.
absl::Status AbortedJob(absl::string_view rank, int job_rank,
                        const absl::Status& why);

}  // namespace lockstep::internal_collective::verdicts

#endif  // LOCKSTEP_COLLECTIVE_VERDICTS_H_
