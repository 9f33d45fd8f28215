// The words and the status codes with which a group fails. Rank 0 (control/),
// the engine of a rank that does not wait for rank 0 (engine/), and the local
// backend decide why a group fails, and use these functions to say it.
//
//   Fail(verdicts::DidNotCome({"barrier() #3 of group 'world'", 3},
//                             verdicts::ListRanks({1, 2}), absl::Seconds(5),
//                             {{rank_1, "rank 1 has issued nothing"}}, 1));
//
// Each verdict has blame (blame.h) that agrees with its words. A rank is named
// as the caller names it, for example "rank 2" or "rank 2 (trainer-1, pid
// 4711)". An operation is named as by Operation::DescribeIn. The examples below
// abbreviate both.
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
#include "lockstep/collective/blame.h"

namespace lockstep::internal_collective::verdicts {

// ---- Parts of verdicts.

// A rank that a verdict names: its name in the message, and in the blame.
struct Party {
  std::string name;
  Blame::Rank rank;
};

// The operation of which a verdict says something: its name in the message, and
// its number, which is 0 for a message between two ranks.
struct Subject {
  std::string operation;
  uint64_t number = 0;
};

// Returns "ranks 1, 2", or "rank 1". If that is longer than `longest` bytes, it
// is cut off: "40 ranks, ranks 1, 2, ...".
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

// Returns "had last issued ... as of 2s ago, and has been silent for 2s", for a
// rank that does not answer. `last_words` is what DescribeLastWords returns, or
// "" if no heartbeat of the rank has come.
std::string DescribeSilence(absl::string_view last_words,
                            absl::Duration silent);

// Returns what ranks must not rely on after they differed, if a device may have
// done the operation all the same: all results from collective `number` on.
std::string ResultsAreSuspect(uint64_t number);

// ---- Ranks that do not do the same.

// A rank, and the operation that it issued, or "" if that is not known.
struct Issued {
  Party rank;
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

// The numbers of elements in an all-to-all that one rank sends to another, and
// that the other takes from it.
struct CountsThatDiffer {
  Party from, to;
  int64_t gives = 0, takes = 0;
};

// FAILED_PRECONDITION "all_to_all(...) #3 ...: rank 0 sends 3 elements to rank
// 1, which takes 4".
absl::Status CountsDiffer(const Subject& subject,
                          const CountsThatDiffer& counts);

// A rank, and its value of a group's property.
struct Property {
  Party rank;
  std::string value;
};

// FAILED_PRECONDITION "the ranks differ in the backend of group 'world': rank 1
// has tcp, and rank 0 has shm". `what` is "backend", "members" or an option.
absl::Status PropertiesDiffer(absl::string_view what, absl::string_view group,
                              const Property& one, const Property& other);

// ---- Ranks that do not come.

// A rank that has not come or does not answer, and a clause with what is known
// of it. `answers` is false if it had time to answer, and has not.
struct Missing {
  Party rank;
  std::string said;
  bool answers = true;
};

// DEADLINE_EXCEEDED "all_reduce(...) #17 ...: ranks 1, 2 did not come within
// 10m; rank 1 last issued ...; rank 2 had last issued ...". `who` is what
// ListRanks returns. `missing` describes some of these ranks, first those that
// do not answer. If any rank does not answer, only such ranks are to blame,
// because the others may wait for them. `more` is the number of ranks to blame
// that are not in `missing`.
absl::Status DidNotCome(const Subject& subject, absl::string_view who,
                        absl::Duration deadline,
                        const std::vector<Missing>& missing, int64_t more);

// DEADLINE_EXCEEDED "all_reduce(...) #17 ...: all ranks came, and it was not
// done within 10m; its data does not get through, or is slow". If some ranks do
// not answer, they are in `silent`, and stand in place of the last clause.
absl::Status WasNotDone(const Subject& subject, absl::Duration deadline,
                        const std::vector<Missing>& silent);

// DEADLINE_EXCEEDED "all_reduce(...) #17 ... did not end within 10m, and who is
// missing is not known: rank 0 ... has been silent for 12s". A rank says this
// if rank 0 does not answer.
absl::Status MissingIsNotKnown(const Subject& subject, absl::Duration deadline,
                               const Missing& hub);

// DEADLINE_EXCEEDED "group 'world': rank 0 (trainer-0, pid 4711) did not answer
// within 10m". Rank 0 has not confirmed that a rank has joined a group.
absl::Status HubIsSilent(absl::string_view group, const Party& hub,
                         absl::Duration deadline);

// `why`, which a transport has returned on rank `rank`: "all_reduce(...) #17
// ... on rank 1: connection reset". Another rank may know a better cause.
absl::Status TransportFailed(const Subject& subject, int rank,
                             const absl::Status& why);

// Returns "all_reduce(...) #17 ... is slow: ranks 1, 2 have not come yet; ...",
// for on_slow. `who` is "" if no rank is missing.
std::string IsSlow(absl::string_view operation, absl::string_view who,
                   const std::vector<Missing>& missing);

// An operation that waits for a rank, which waits for another operation.
struct WaitsFor {
  std::string operation;
  Party rank;
  std::string its_operation;
};

// FAILED_PRECONDITION "ranks use groups in different orders, and wait for each
// other: A waits for rank 1, which waits for B; B waits for rank 0, which waits
// for A".
absl::Status Deadlock(const std::vector<WaitsFor>& waits);

// ---- Ranks that are gone.

// UNAVAILABLE "barrier() #4 ...: rank 2 has left the group; rank 2 last issued
// ...". The second clause is left out if what the rank issued last is "".
absl::Status HasLeftGroup(const Subject& subject, const Party& rank);

// UNAVAILABLE "rank 2 has dropped its communicator of group 'world'; rank 2
// last issued ...". The operations of the rank that have not ended end with it.
// The second clause is as above.
absl::Status HasDropped(absl::string_view group, const Party& rank);

// UNAVAILABLE "making the group 'half': rank 2 has left the group".
absl::Status LeftBeforeMaking(absl::string_view group, const Party& rank);

// UNAVAILABLE: a rank can't join a group that is split off one that it has
// left. The first is for ranks that have joined the group before, and the
// second for a rank that joins it later. `rank` is a rank of the parent.
absl::Status LeftBeforeJoining(absl::string_view parent, const Party& rank);
absl::Status CannotJoinAnyMore(absl::string_view parent, const Party& rank,
                               absl::string_view group);

// UNAVAILABLE "rank 2 of the job has closed its world".
absl::Status HasClosedWorld(const Blame::Rank& rank);

// UNAVAILABLE "rank 2 has left the job", if `how` is OK; otherwise the code and
// the message of `how`, which says how the rank was lost. What the rank issued
// last follows, if it is known. `reason` is OK, or the failure that the rank
// had been told before it left. That failure may be why the rank left, so the
// result then has the blame of `reason`. In all other cases, the result has the
// blame of `how`, or blames the rank if `how` has none.
absl::Status IsGone(const Party& rank, const absl::Status& how,
                    const absl::Status& reason);

// Appends the first rank that was lost to a failure that may be its
// consequence, which is one with the code UNAVAILABLE, and blames that rank.
// Returns `why` as it is if no rank was lost (`first_loss` is OK), or if it
// names that loss already.
absl::Status AfterFirstLoss(const absl::Status& why,
                            const absl::Status& first_loss);

// ABORTED "rank 1 aborted the group 'world': INTERNAL: loss is NaN". The result
// has the blame of `why`. If `why` has none, it blames the rank that aborts.
absl::Status Aborted(absl::string_view group, const Party& rank,
                     const absl::Status& why);

// ABORTED "rank 1 (trainer-1, pid 4711) has aborted the job: NOT_FOUND: no
// device 3". The blame is as in Aborted.
absl::Status AbortedJob(const Party& rank, const absl::Status& why);

// `why`, an error of rank 1 that does not come from a call of Abort or from a
// transport, such as a thread that does not start: "rank 1 of group 'world':
// starting a thread ...". The blame is as in Aborted.
absl::Status Broke(absl::string_view group, const Party& rank,
                   const absl::Status& why);

// ---- Processes that are no rank.

// FAILED_PRECONDITION "this process was forked from rank 1 of ...".
absl::Status ForkedFrom(absl::string_view whom);

}  // namespace lockstep::internal_collective::verdicts

#endif  // LOCKSTEP_COLLECTIVE_VERDICTS_H_
