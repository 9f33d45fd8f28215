// The lane of collectives that a device does. A turn is in the lane until the
// device is done with it, which a thread has to look for: that of a caller who
// waits, or the lane's. The star's thread does not, since a device's library
// may hang.
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

// Thread-safety: that of Lane.
class DeviceLane final : public Lane, public CollectiveLane {
 public:
  // `transport` outlives Close.
  DeviceLane(const LaneGroup& group, DeviceTransport& transport);

  Lane& lane() override { return *this; }

  // These are Lane's.
  void Fail(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;
  void AwaitIdleUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;
  SteadyTime KnownAsOf(const LaneGroup& group, SteadyTime now) const override;

  // These are CollectiveLane's.
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
  // What this rank gave may still be on its way to others when the device has
  // nothing to do any more.
  bool LeavesInOrder() const override { return true; }
  void Cancel() override;
  void Close() override { queue_.Close(); }

 protected:
  // Looks if that is wanted, and goes on while there is something that nobody
  // else may look for.
  void TendUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) override;

 private:
  // Launches what was entered last, if that needs no waiting. Releases the
  // mutex while the device's library is called.
  void LaunchLastUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);
  // Launches what may be launched, and ends what the device is done with.
  // Releases the mutex while the device's library is called.
  LaunchQueue::Progress LookUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);
  void Settle(LaneGroup& group, const LaunchQueue::Progress& seen)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);
  // Lets some time pass before the next look, the less the shorter the wait is.
  // Releases the mutex meanwhile.
  static void PauseUnlocking(LaneGroup& group, Waiting& waiting)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);

  DeviceTransport& transport_;
  const bool agrees_;  // with the other ranks, before each collective
  // The ranks agree on collectives up to this number, or need not.
  uint64_t agreed_;
  LaunchQueue queue_;
  MarkLog marks_;
  SteadyTime seen_ = {};  // what is done is known as of then
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_DEVICE_LANE_H_
