// The lane of collectives that the host does, in calls of a transport that
// block.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_HOST_LANE_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_HOST_LANE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/engine/issued_work.h"
#include "lockstep/collective/engine/lane.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// A lane whose turns are done by calls that block.
// Thread-safety: that of Lane.
class BlockingLane : public Lane {
 public:
  using Lane::Lane;

  void Fail() override;
  void AwaitIdle() override;

 protected:
  void Tend() override;

  // Returns true if the first turn may be done now.
  bool CanRun() const;
  // Does the first turn. Releases the mutex while it is in the transport.
  // Requires CanRun.
  void RunFirst();
  // Takes in that the transport has failed in the first turn.
  void TakeError(const Turn& turn, const absl::Status& error);

 private:
  // Does the turn, which blocks. Called without the mutex.
  virtual absl::Status Transfer(const Turn& turn) = 0;
};

// The lane of collectives that the host does. A caller that waits without a
// time limit does the turns itself. If there is no such caller, the lane's
// thread does them. Thread-safety: that of Lane.
class HostLane final : public BlockingLane {
 public:
  // Requires: `transport` outlives the thread and the last call of a caller
  // that waits.
  HostLane(Group& group, Transport& transport)
      : BlockingLane(group, LaneId()), transport_(transport) {}

  void Begin(const Turn& turn) override;
  bool Await(const IssuedWork& work, Waiting& waiting) override;

 private:
  absl::Status Transfer(const Turn& turn) override {
    return transport_.Run(turn.work->op, turn.fingerprint);
  }

  Transport& transport_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_HOST_LANE_H_
