// A Meeting lets the ranks of a job tell rank 0 texts, and rank 0 tell all. It
// uses only their connections to rank 0, so it works where ranks can't reach
// each other.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto meeting,
//                             Meeting::Make(*world, until));
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> hosts,
//                             meeting->Collect(host));  // empty but on rank 0
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::string plan, meeting->Tell(plan));
#ifndef LOCKSTEP_TOOLS_DOCTOR_MEETING_H_
#define LOCKSTEP_TOOLS_DOCTOR_MEETING_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/world.h"

namespace lockstep {

// Requires: all ranks make the same calls in the same order.
// Guarantees: a call that waits for a rank that is lost, or that has called
// Abort, returns its failure.
// Thread-safety: thread-compatible.
class Meeting {
 public:
  // `until` limits all calls. `world` outlives the meeting.
  static absl::StatusOr<std::unique_ptr<Meeting>> Make(World& world,
                                                       absl::Time until);

  // Sets the limit of later calls. Rank 0 tells the others what has failed, so
  // they wait for some seconds longer.
  void SetUntil(absl::Time until);

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }

  // Returns the address at which other ranks reach this one.
  const std::string& address() const { return context_.address; }

  // Ends the meeting for all ranks. A rank that can't go on calls it, since
  // others would wait for it.
  void Abort(const absl::Status& why) { group_->Abort(why); }

  // Returns the texts of all ranks on rank 0, by rank, and nothing on the
  // others. A text has at most 1 MiB. DEADLINE_EXCEEDED names all ranks that
  // have not called it in time.
  absl::StatusOr<std::vector<std::string>> Collect(absl::string_view text);

  // Returns rank 0's text on all ranks.
  absl::StatusOr<std::string> Tell(absl::string_view text);

  // Returns the texts of all ranks on all ranks. Together, they have less than
  // 1 MiB.
  absl::StatusOr<std::vector<std::string>> Exchange(absl::string_view text);

 private:
  Meeting() = default;

  std::string NextKey();
  // Returns the reason for which the group has failed, if it has, in place of
  // an error of its store.
  absl::Status Why(const absl::Status& status) const;

  absl::Time until_;
  TransportContext context_;
  std::unique_ptr<Communicator> group_;
  int calls_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DOCTOR_MEETING_H_
