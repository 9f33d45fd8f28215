// A group at this rank: its transport, its lanes, and how it fails.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_GROUP_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_GROUP_H_

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

// Thread-safety: that of LaneGroup.
class Group final : public LaneGroup {
 public:
  using LaneGroup::LaneGroup;

  // ---- The transport and the lanes.

  // Takes the transport, and makes the lane for its kind of collectives.
  void Take(AnyTransport transport) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Takes back what a device was given. Called without the mutex, when the
  // lanes' threads have ended.
  void CloseLanes() {
    if (collectives_ != nullptr) collectives_->Close();
  }
  // Destroys the transport. Called without the mutex, when no thread uses it.
  void DropTransport() { transport_ = nullptr; }

  // These three require Take.
  TransportBase& transport() { return *transport_; }
  CollectiveLane& collectives() { return *collectives_; }
  // Returns the lane to rank `peer` if this rank `sends`, or else that from it.
  PairLane& PairWith(int peer, bool sends) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // What follows, and CloseLanes and DropTransport, may be called without Take.
  // There is no lane then.

  // Calls `visit` with each lane, that of the collectives first.
  template <typename Visit>
  void ForEachLane(const Visit& visit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (collectives_ != nullptr) visit(collectives_->lane());
    for (auto& [id, lane] : pairs_) visit(lane);
  }
  // Returns this rank's lane of that id, or nullptr.
  const Lane* Find(const LaneId& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Returns how many operations of each lane are done, or have been issued.
  LaneCounts Counts(bool done_only) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Returns, or tells rank 0, what was issued since the last call, where
  // nothing else compares it.
  std::vector<Mark> TakeMarks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void SendMarks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // The ranks of a strict group agree on collectives up to number `agreed`.
  void OnAgreed(uint64_t agreed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // ---- Failing.

  // Fails the group for good, and allocates nothing for it. An operation that
  // is in the transport or on a device ends when it comes back: its memory is
  // in use until then.
  void Fail(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Has the group fail with `why` when `after` collectives have ended well.
  void FailAfter(const absl::Status& why, uint64_t after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Has the failure that is coming come now.
  void FailAsComing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // The failure that is coming, or OK.
  const absl::Status& coming() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return coming_.why;
  }
  // Tells the others of this rank's failure, if they have yet to be told.
  void TellFailure() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Another rank has left, and takes part in that many operations.
  void OnLeft(int left, const LaneCounts& counts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // These are LaneGroup's.
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

  // These two are set once, by Take, before any operation is issued.
  std::unique_ptr<TransportBase> transport_;
  std::unique_ptr<CollectiveLane> collectives_;
  // The lanes between two ranks, by their id and whether this rank sends.
  std::map<std::pair<LaneId, bool>, PairLane> pairs_ ABSL_GUARDED_BY(mutex);

  Coming coming_ ABSL_GUARDED_BY(mutex);
  // There was no memory for the message that tells the others of the failure.
  bool untold_ ABSL_GUARDED_BY(mutex) = false;
  std::map<int, LaneCounts> left_ ABSL_GUARDED_BY(mutex);
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_GROUP_H_
