// The lane of collectives that a device does. A turn stays in the lane until a
// thread has seen that the device is done with it. This is the lane's thread,
// or the thread of a caller that waits, asks whether an operation is done, or
// leaves the group. The star's thread does not look, since a device's library
// may hang.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_DEVICE_LANE_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_DEVICE_LANE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/engine/issued_work.h"
#include "lockstep/collective/engine/lane.h"
#include "lockstep/collective/engine/launch_queue.h"
#include "lockstep/collective/engine/mark_log.h"
#include "lockstep/collective/transport.h"
#include "lockstep/gpu/stream.h"

namespace lockstep::internal_collective {

// The lane of collectives that a device does.
// Thread-safety: that of Lane.
class DeviceLane final : public Lane {
 public:
  // Requires: `transport` outlives Close.
  DeviceLane(Group& group, DeviceTransport& transport);

  // Makes ready all of a collective that does not depend on its number in the
  // lane. Called without the mutex. SetNext then gives the result to Begin,
  // which is called next.
  absl::StatusOr<std::shared_ptr<Launch>> Prepare(
      const std::shared_ptr<IssuedWork>& work);
  void SetNext(std::shared_ptr<Launch> launch) { next_ = std::move(launch); }
  // Calls of the transport are made without the mutex.
  DeviceTransport& transport() const { return transport_; }

  // These override Lane.
  void Begin(const Turn& turn) override;
  bool Await(const IssuedWork& work, Waiting& waiting) override;
  void Poll() override { Look(); }
  void Fail() override;
  void AwaitIdle() override;
  SteadyTime KnownAsOf(SteadyTime now) const override;

  // Makes `stream` wait for `work`, unless that has ended. Waits until `work`
  // is on the device. Called without the mutex.
  absl::Status WaitOnStream(const IssuedWork& work, Stream stream);

  // Is called when the transport is connected.
  void OnConnected();

  // Returns the marks of what was issued since the last call.
  std::vector<Mark> TakeMarks() { return marks_.Take(); }

  // Returns true if it is known which turns were done at `time`, or if
  // FailureTiming::look has passed since then.
  bool Knows(SteadyTime time) const;
  // Finds out which turns are done by now. Gives up after FailureTiming::look,
  // since the device's library may hang. Releases the mutex while it waits.
  void CatchUp();

  // Stops launching. Called before the transport is cancelled.
  void Cancel() { queue_.Cancel(); }
  // Drops all that the device was given. It is the last call, made without the
  // mutex after the lane's thread has ended.
  void Close() { queue_.Close(); }

 protected:
  // Looks if that is wanted. Goes on looking while collectives have yet to be
  // launched, or while turns of a failed group have yet to end.
  void Tend() override;

 private:
  // Launches the collective that was entered last, if that needs no waiting, or
  // else leaves it to the lane's thread. Releases the mutex while the device's
  // library is called.
  void LaunchLast();
  // Launches the collectives that may be launched, and ends those that the
  // device is done with. Releases the mutex while the device's library is
  // called.
  LaunchQueue::Snapshot Look();
  void Settle(const LaunchQueue::Snapshot& seen);
  // Lets some time pass before the next look, the less the shorter the wait is.
  // Releases the mutex meanwhile.
  void Pause(Waiting& waiting);

  DeviceTransport& transport_;
  std::shared_ptr<Launch> next_;  // from SetNext to Begin
  LaunchQueue queue_;
  MarkLog marks_;
  SteadyTime seen_ = {};  // it is known what was done then
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_DEVICE_LANE_H_
