// The words and the status codes with which a group fails. Rank 0 (control/), a
// rank that aborts a group (engine/) and the local backend decide why it fails,
// and use these functions to say it.
//
//   Fail(verdicts::DidNotCome("barrier() #3 of group 'world'",
//                             verdicts::ListRanks({1, 2}), absl::Seconds(5),
//                             {"rank 1 has issued nothing"}));
//
// A verdict calls ranks as its caller does, for example "rank 2" or "rank 2
// (trainer-1, pid 4711)". A caller calls an operation as
// Operation::DescribeIn does.
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

// Returns what `rank` issued last in the group, where "" stands for nothing.
std::string DescribeLastIssued(absl::string_view rank,
                               absl::string_view operation);

// Returns "had last issued ... as of 2s ago", for a rank that said so long ago
// in a heartbeat what it had issued, where "" stands for nothing.
std::string DescribeLastWords(absl::string_view issued, absl::Duration ago);

// Returns what is known of a rank that does not answer. `last_words` is "" if
// no heartbeat of it has come.
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

// Says that the ranks differ in a collective whose number is from `first` to
// `last`, or, if these are 0, in an operation between two ranks. `suspect` is
// "" or what ResultsAreSuspect returns.
absl::Status OperationsDiffer(absl::string_view group, uint64_t first,
                              uint64_t last, const std::vector<Issued>& issued,
                              absl::string_view suspect);

// Says that a send and the receive that it meets differ.
absl::Status SendAndRecvDiffer(absl::string_view group, const Issued& send,
                               const Issued& recv);

// The numbers of elements in an all-to-all that one rank sends to another, and
// that the other takes from it.
struct CountsThatDiffer {
  std::string from, to;  // ranks
  int64_t gives = 0, takes = 0;
};

// Says that a rank does not take what another one sends to it.
absl::Status CountsDiffer(absl::string_view operation,
                          const CountsThatDiffer& counts);

// A rank, and its value of a group's property.
struct Property {
  std::string rank;
  std::string value;
};

// Says that ranks differ in `what`, such as "backend", of a group that they
// make.
absl::Status PropertiesDiffer(absl::string_view what, absl::string_view group,
                              const Property& one, const Property& other);

// ---- Ranks that do not come.

// Says that `who` (what ListRanks returns) were missing when the deadline
// passed. `said` has a clause for each rank of which something is known.
absl::Status DidNotCome(absl::string_view operation, absl::string_view who,
                        absl::Duration deadline,
                        const std::vector<std::string>& said);

// Says that all ranks came, and the deadline passed all the same.
absl::Status WasNotDone(absl::string_view operation, absl::Duration deadline,
                        const std::vector<std::string>& said);

// Returns what on_slow is told. `who` is "" if no rank is missing.
std::string IsSlow(absl::string_view operation, absl::string_view who,
                   const std::vector<std::string>& said);

// An operation that waits for a rank, which waits for another operation.
struct WaitsFor {
  std::string operation;
  std::string rank;
  std::string its_operation;
};

// Says that ranks wait for each other in several groups: the first one for the
// second, and the last one for the first.
absl::Status Deadlock(const std::vector<WaitsFor>& waits);

// ---- Ranks that are gone.

// Says that an operation needs a rank that has left. `last` is what
// DescribeLastIssued returns.
absl::Status HasLeftGroup(absl::string_view operation, absl::string_view rank,
                          absl::string_view last);

// Says that a rank has dropped a communicator with operations that had not
// ended.
absl::Status HasDropped(absl::string_view group, int rank,
                        absl::string_view last);

// Says that a rank can't join a group that is split off one that it has left:
// the first to ranks that have joined the group before, and the second to a
// rank that joins it later.
absl::Status LeftBeforeJoining(absl::string_view parent, int rank);
absl::Status CannotJoinAnyMore(absl::string_view parent, int rank,
                               absl::string_view group);

// Says that a rank has left the job, if `how` is OK, or else that it is lost,
// as `how` says. `last_words` is "" or what DescribeLastWords returns. `told`
// is the failure of which the rank had been told before it left, or OK.
absl::Status IsGone(absl::string_view rank, const absl::Status& how,
                    absl::string_view last_words, const absl::Status& told);

// Appends the first rank that was lost to a failure that may be its
// consequence, which is one with the code UNAVAILABLE. Returns `why` as it is
// if no rank was lost (`first_loss` is OK), or if it names that loss already.
absl::Status AfterFirstLoss(const absl::Status& why,
                            const absl::Status& first_loss);

// Says that a rank has called Abort with `why`.
absl::Status Aborted(absl::string_view group, int rank,
                     const absl::Status& why);

}  // namespace lockstep::internal_collective::verdicts

#endif  // LOCKSTEP_COLLECTIVE_VERDICTS_H_
