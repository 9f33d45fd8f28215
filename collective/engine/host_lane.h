// The lane of collectives that the host does.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_HOST_LANE_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_HOST_LANE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/engine/blocking_lane.h"
#include "lockstep/collective/engine/collective_lane.h"
#include "lockstep/collective/engine/issued_work.h"
#include "lockstep/collective/engine/lane.h"
#include "lockstep/collective/engine/lane_group.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/work.h"

namespace lockstep::internal_collective {

// The lane of collectives that the host does. A caller that waits does the
// turns itself. The lane's thread does them when no caller waits.
// Thread-safety: that of Lane.
class HostLane final : public BlockingLane, public CollectiveLane {
 public:
  // Requires: `transport` outlives the thread and the last call of a caller
  // that waits.
  HostLane(const LaneGroup& group, Transport& transport)
      : BlockingLane(group, LaneId()), transport_(transport) {}

  Lane& lane() override { return *this; }

  absl::StatusOr<std::shared_ptr<Launch>> Prepare(
      const std::shared_ptr<IssuedWork>& /*work*/) override {
    return nullptr;
  }
  void IssueUnlocking(LaneGroup& group, const std::shared_ptr<IssuedWork>& work,
                      uint64_t fingerprint, std::shared_ptr<Launch> launch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;
  bool AwaitUnlocking(LaneGroup& group, const IssuedWork& work,
                      Waiting& waiting)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;
  void PollUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override {
    Want(group);
  }
  absl::Status CheckStreams(absl::string_view instead) const override;
  absl::Status WaitOnStream(LaneGroup& /*group*/, const IssuedWork& /*work*/,
                            Stream /*stream*/) override {
    return CheckStreams("call Wait");
  }
  void OnConnected(LaneGroup& /*group*/) override {}
  void OnAgreed(LaneGroup& /*group*/, uint64_t /*agreed*/) override {}
  // Returns nothing, since the transport compares fingerprints.
  std::vector<Mark> TakeMarks() override { return {}; }
  // Returns true, since a turn is done when the transport's call returns.
  bool Knows(const LaneGroup& /*group*/, SteadyTime /*time*/) const override {
    return true;
  }
  void SeekToKnow(LaneGroup& /*group*/) override {}
  void CatchUpUnlocking(LaneGroup& /*group*/) override {}
  bool LeavesInOrder() const override { return false; }
  void Cancel() override { transport_.Cancel(); }
  void Close() override {}

 private:
  absl::Status Transfer(const Turn& turn) override {
    return transport_.Run(turn.work->op, turn.fingerprint);
  }

  Transport& transport_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_HOST_LANE_H_
