// Inquiries find out, on rank 0, why an operation does not end:
//
//   Report   a rank says that an operation waits: ask the others of its lane
//            where they are
//   Answer   a rank says where it is, and all that is known is judged again
//   OnTick   time has passed, and all that may be due is judged again
//
// A judgement first compares what the ranks have issued, and then looks for
// ranks that wait for each other. When all ranks have answered or had time to,
// it names those that are missing: it fails the group if a deadline has passed,
// and tells on_slow otherwise. hub.h shows the path of the messages.
#ifndef LOCKSTEP_COLLECTIVE_CONTROL_INQUIRIES_H_
#define LOCKSTEP_COLLECTIVE_CONTROL_INQUIRIES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/control/failure_timing.h"
#include "lockstep/collective/control/hub_group.h"
#include "lockstep/collective/control/last_words.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {

// An operation that waits, as far as rank 0 knows it. Ranks are those of the
// group.
struct Inquiry {
  verdicts::Subject subject;          // the operation
  std::map<int, Position> positions;  // by rank
  std::set<int> asked;                // the ranks whose answer is due
  absl::Duration asked_at;            // by ControlPlane::ran()
  bool expired = false;
  absl::Duration deadline;
  bool slow_reported = false;
};

// Rank 0's inquiries into operations that wait.
//
// Requires: `groups`, `last_words`, `timing` and `star` outlive this. `fail`
// calls Forget for the group that it fails.
// Guarantees: each inquiry ends when its group fails, when all ranks have left
// the group, or when a later operation of its lane is reported. No rank is
// blamed for not answering before it had `timing.answers` to do so.
// Thread-safety: use it on the star's thread.
class Inquiries {
 public:
  // Fails the group with this key.
  using FailGroup =
      std::function<void(const std::string& group, const absl::Status& why)>;

  Inquiries(const HubGroups& groups, const LastWords& last_words,
            const FailureTiming& timing, Star& star, FailGroup fail)
      : groups_(groups),
        last_words_(last_words),
        timing_(timing),
        star_(star),
        fail_(std::move(fail)) {}

  // Job rank `from` reports an operation, or answers.
  void Report(int from, const Late& late);
  void Answer(int from, const TurnId& turn, const Position& position);

  // Judges again the operations that waited for time to pass. `ran` is
  // ControlPlane::ran().
  void OnTick(absl::Duration ran);

  // Returns whether there is an inquiry into this operation.
  bool Has(const TurnId& turn) const { return inquiries_.count(turn) > 0; }

  // Returns whether an operation of the group has expired, so that a verdict on
  // it will fail the group soon.
  bool HasExpired(const std::string& group) const;

  // Ends the group's inquiries, or, if `after` is not 0, those into collectives
  // behind that number.
  void Forget(const std::string& group, uint64_t after);

 private:
  // Ends the inquiries into earlier operations of the lane, which have ended at
  // a rank that reports this one. Those that have expired go on.
  void DropEarlier(const TurnId& turn);
  // Asks all ranks that the operation needs, except rank `except`. That happens
  // when an operation is reported for the first time, and when its deadline has
  // passed.
  void Ask(const HubGroup& group, const TurnId& turn, Inquiry& inquiry,
           int except);
  // Asks a job rank, which now waits at `turn`, again about operations to
  // which it had not come: it may now be known for what it waits.
  void AskAgain(int job_rank, const TurnId& turn);

  // Judges an operation of which rank `newest` has said something, or for which
  // time has passed if `newest` is -1. A verdict ends the inquiry.
  void Judge(const TurnId& turn, int newest);
  void FailForDifference(const TurnId& turn, const HubGroup& group,
                         const Inquiry& inquiry, std::pair<int, int> ranks);
  // Fails the group, and returns true, if `rank` gives or takes other numbers
  // of elements in an all-to-all than another rank takes or gives.
  bool JudgeCounts(const TurnId& turn, const HubGroup& group,
                   const Inquiry& inquiry, int rank);
  // Fails the groups, and returns true, if ranks wait for each other in several
  // groups.
  bool JudgeDeadlock(const TurnId& start);
  // Names the missing ranks: fails the group if the deadline has passed, and
  // tells on_slow, once, otherwise. If `missing` is empty, all ranks came, and
  // those that do not answer are named.
  void JudgeMissing(const TurnId& turn, const HubGroup& group, Inquiry& inquiry,
                    const std::vector<int>& missing);
  // Returns what is known of such a rank: its answer, or its silence.
  verdicts::Missing Describe(const HubGroup& group, const Inquiry& inquiry,
                             int rank) const;

  const HubGroups& groups_;
  const LastWords& last_words_;
  const FailureTiming& timing_;
  Star& star_;
  const FailGroup fail_;

  absl::Duration ran_;
  std::map<TurnId, Inquiry> inquiries_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_CONTROL_INQUIRIES_H_
