// A group at this rank, with its transport, its lanes and its failure.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_ENGINE_GROUP_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_ENGINE_GROUP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/engine/collective_lane.h"
#include "lockstep/collective/engine/lane.h"
#include "lockstep/collective/engine/lane_group.h"
#include "lockstep/collective/engine/pair_lane.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// The transport and the lanes of a group at this rank.
// Thread-safety: that of LaneGroup.
class EngineGroup final : public LaneGroup {
 public:
  using LaneGroup::LaneGroup;

  // ---- The transport and the lanes.

  // Takes the transport, and makes the lane for its kind of collectives.
  void Take(AnyTransport transport) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Drops all that a device was given. Called without the mutex, after the
  // lanes' threads have ended.
  void CloseLanes() {
    if (collectives_ != nullptr) collectives_->Close();
  }
  // Destroys the transport. Called without the mutex, once no thread uses the
  // transport.
  void DropTransport() { transport_ = nullptr; }

  // These three require Take.
  TransportBase& transport() { return *transport_; }
  CollectiveLane& collectives() { return *collectives_; }
  // Returns the lane to rank `peer` if `sends` is true, or else the lane from
  // that rank.
  PairLane& PairWith(int peer, bool sends) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // The following functions, CloseLanes and DropTransport may be called without
  // Take. There are no lanes then.

  // Calls `visit` with each lane, that of the collectives first.
  template <typename Visit>
  void ForEachLane(const Visit& visit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (collectives_ != nullptr) visit(collectives_->lane());
    for (auto& [id, lane] : pairs_) visit(lane);
  }
  // Returns this rank's lane of that id, or nullptr.
  const Lane* Find(const LaneId& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Returns how many operations of each lane are done, or, if `done_only` is
  // false, have been issued.
  LaneCounts Counts(bool done_only) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Return the marks of CollectiveLane::TakeMarks, or send them to rank 0.
  std::vector<Mark> TakeMarks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void SendMarks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Is called when the ranks of a strict group agree on collectives up to
  // number `agreed`.
  void OnAgreed(uint64_t agreed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // ---- Failing.

  // Fails the group for good, without allocating memory. An operation that is
  // in the transport or on a device ends only when it comes back, since its
  // memory is in use until then.
  void Fail(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Makes the group fail with `why` once `after` collectives have ended well.
  void FailAfter(const absl::Status& why, uint64_t after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Fails the group now, with the failure that is coming.
  void FailAsComing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Returns the failure that is coming, or OK.
  const absl::Status& coming() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return coming_.why;
  }
  // Tells the others of this rank's failure, if they have yet to be told.
  void TellFailure() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Is called when rank `left` has left. It takes part only in the first
  // `counts` operations of each lane.
  void OnLeft(int left, const LaneCounts& counts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // These override LaneGroup.
  void GiveUp(const absl::Status& why) noexcept override;
  void FailOfItself(const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) override;
  void FailIfDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) override;
  void FailIfLeft(const Lane& lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) override;

 private:
  // A failure that lets earlier collectives end first.
  struct Coming {
    absl::Status why;
    uint64_t after = 0;
    SteadyTime since;
  };

  // Returns how many collectives are done.
  uint64_t CollectivesDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return collectives_ == nullptr ? 0 : collectives_->lane().done();
  }

  // Take sets these two before any operation is issued. DropTransport frees the
  // transport.
  std::unique_ptr<TransportBase> transport_;
  std::unique_ptr<CollectiveLane> collectives_;
  // The lanes between two ranks, by their id and whether this rank sends.
  std::map<std::pair<LaneId, bool>, PairLane> pairs_ ABSL_GUARDED_BY(mutex);

  Coming coming_ ABSL_GUARDED_BY(mutex);
  // True while the others have yet to be told of the failure, since there was
  // no memory for the message.
  bool untold_ ABSL_GUARDED_BY(mutex) = false;
  // The ranks that have left, and the operations in which they take part.
  std::map<int, LaneCounts> left_ ABSL_GUARDED_BY(mutex);
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_ENGINE_GROUP_H_
