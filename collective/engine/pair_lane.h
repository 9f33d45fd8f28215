// The lane of what this rank sends to one rank, or receives from one.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_PAIR_LANE_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_PAIR_LANE_H_

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/engine/blocking_lane.h"
#include "lockstep/collective/engine/issued_work.h"
#include "lockstep/collective/engine/lane.h"
#include "lockstep/collective/engine/lane_group.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// The lane's thread, which it has as soon as it has a turn, does all turns.
// What a rank sends to itself has no thread: see MoveToSelfUnlocking.
// Thread-safety: that of Lane.
class PairLane final : public BlockingLane {
 public:
  // `transport` outlives the thread. The rank sends if `sends` is true.
  PairLane(const LaneGroup& group, const LaneId& id, bool sends,
           TransportBase& transport)
      : BlockingLane(group, id), sends_(sends), transport_(transport) {}

  // Takes in `work`'s send or receive, and begins it.
  void Issue(LaneGroup& group, const std::shared_ptr<IssuedWork>& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);

  // Moves what this rank has sent to itself and wants to receive, which needs
  // no other rank. Releases the mutex while the transport moves it.
  static void MoveToSelfUnlocking(LaneGroup& group, PairLane& sends,
                                  PairLane& recvs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);

 protected:
  void EnsureThread(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;

 private:
  bool to_itself() const { return id().from == id().to; }
  absl::Status Transfer(const Turn& turn) override;

  // Moves the first turn of both, after which they are ended. Returns false if
  // nothing more can be moved. Releases the mutex while the transport moves it.
  static bool MoveFirstUnlocking(LaneGroup& group, PairLane& sends,
                                 PairLane& recvs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);

  const bool sends_;
  TransportBase& transport_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_PAIR_LANE_H_
