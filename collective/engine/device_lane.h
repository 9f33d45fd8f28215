// The lane of collectives that a device does. A turn stays in the lane until a
// thread has seen that the device is done with it: the thread of a caller that
// waits, or the lane's. The star's thread does not look, since a device's
// library may hang.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_DEVICE_LANE_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_DEVICE_LANE_H_

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
#include "lockstep/collective/engine/collective_lane.h"
#include "lockstep/collective/engine/issued_work.h"
#include "lockstep/collective/engine/lane.h"
#include "lockstep/collective/engine/lane_group.h"
#include "lockstep/collective/engine/launch_queue.h"
#include "lockstep/collective/engine/mark_log.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/work.h"

namespace lockstep::internal_collective {

// The lane of collectives that a device does.
// Thread-safety: that of Lane.
class DeviceLane final : public Lane, public CollectiveLane {
 public:
  // Requires: `transport` outlives Close.
  DeviceLane(const LaneGroup& group, DeviceTransport& transport);

  Lane& lane() override { return *this; }

  // These override Lane.
  void Fail(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;
  void AwaitIdleUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;
  SteadyTime KnownAsOf(const LaneGroup& group, SteadyTime now) const override;

  // These override CollectiveLane.
  absl::StatusOr<std::shared_ptr<Launch>> Prepare(
      const std::shared_ptr<IssuedWork>& work) override;
  void IssueUnlocking(LaneGroup& group, const std::shared_ptr<IssuedWork>& work,
                      uint64_t fingerprint, std::shared_ptr<Launch> launch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;
  bool AwaitUnlocking(LaneGroup& group, const IssuedWork& work,
                      Waiting& waiting)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;
  void PollUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override {
    LookUnlocking(group);
  }
  absl::Status CheckStreams(absl::string_view /*instead*/) const override {
    return absl::OkStatus();
  }
  absl::Status WaitOnStream(LaneGroup& group, const IssuedWork& work,
                            Stream stream) override;
  void OnConnected(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;
  void OnAgreed(LaneGroup& group, uint64_t agreed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;
  std::vector<Mark> TakeMarks() override { return marks_.Take(); }
  bool Knows(const LaneGroup& group, SteadyTime time) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;
  void SeekToKnow(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override {
    Want(group);
  }
  void CatchUpUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;
  // Returns true. This rank's data may still be on its way to other ranks when
  // its device has nothing left to do, so Cancel could take it from them.
  bool LeavesInOrder() const override { return true; }
  void Cancel() override;
  void Close() override { queue_.Close(); }

 protected:
  // Looks if that is wanted. Goes on looking while collectives have yet to be
  // launched, or while turns of a failed group have yet to end.
  void TendUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;

 private:
  // Launches the collective that was entered last, if that needs no waiting, or
  // else leaves it to the lane's thread. Releases the mutex while the device's
  // library is called.
  void LaunchLastUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);
  // Launches the collectives that may be launched, and ends those that the
  // device is done with. Releases the mutex while the device's library is
  // called.
  LaunchQueue::Progress LookUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);
  void Settle(LaneGroup& group, const LaunchQueue::Progress& seen)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);
  // Lets some time pass before the next look, the less the shorter the wait is.
  // Releases the mutex meanwhile.
  static void PauseUnlocking(LaneGroup& group, Waiting& waiting)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);

  DeviceTransport& transport_;
  const bool agrees_;  // with the other ranks, before it launches
  // The number of the last collective on which the ranks agree, or the greatest
  // number if they need not agree.
  uint64_t agreed_;
  LaunchQueue queue_;
  MarkLog marks_;
  SteadyTime seen_ = {};  // it is known what was done then
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_DEVICE_LANE_H_
