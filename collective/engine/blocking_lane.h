// A lane whose turns are done by calls of a transport that block.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_BLOCKING_LANE_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_BLOCKING_LANE_H_

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/engine/lane.h"
#include "lockstep/collective/engine/lane_group.h"

namespace lockstep::internal_collective {

// A lane that calls its transport for each turn, and waits in that call.
// Thread-safety: that of Lane.
class BlockingLane : public Lane {
 public:
  using Lane::Lane;

  void Fail(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;
  void AwaitIdleUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;

 protected:
  // Returns true if the first turn may be done now.
  bool CanRun(const LaneGroup& group) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);

  // Does the first turn. Releases the mutex while it is in the transport.
  // Requires CanRun.
  void RunFirstUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);

  // Ends the first turn well. Then fails the group if a failure has waited for
  // this turn, or if a rank that the next turn needs has left.
  void FinishRun(LaneGroup& group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);

  void TendUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;

 private:
  // Does the turn, which blocks. Called without the mutex.
  virtual absl::Status Transfer(const Turn& turn) = 0;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_BLOCKING_LANE_H_
