// A CollectiveLane is the interface by which a group's engine uses the lane of
// its collectives, whether the host does them (host_lane.h) or a device
// (device_lane.h).
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_COLLECTIVE_LANE_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_COLLECTIVE_LANE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/engine/issued_work.h"
#include "lockstep/collective/engine/lane.h"
#include "lockstep/collective/engine/lane_group.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/work.h"

namespace lockstep::internal_collective {

// A caller's wait for an operation. A wait without an end reads the clock only
// when it turns out to take time, so a caller that does the operation itself
// does not pay for it.
// Thread-safety: not thread-safe.
class Waiting {
 public:
  // Makes a wait without an end.
  Waiting() = default;
  explicit Waiting(absl::Time until)
      : for_ever_(until == absl::InfiniteFuture()) {
    if (!for_ever_) Begin(After(until - absl::Now(), SteadyNow()));
  }

  bool for_ever() const { return for_ever_; }
  SteadyTime since() {
    if (!begun_) Begin(After(absl::InfiniteDuration(), SteadyNow()));
    return since_;
  }
  // Returns the end of the wait, which is a century away if it has none.
  SteadyTime until() {
    since();
    return until_;
  }

 private:
  void Begin(SteadyTime until) {
    since_ = SteadyNow();
    until_ = until;
    begun_ = true;
  }

  bool for_ever_ = true;
  bool begun_ = false;
  SteadyTime since_ = {};
  SteadyTime until_ = {};
};

// The lane of a group's collectives.
// Thread-safety: that of Lane.
class CollectiveLane {
 public:
  virtual ~CollectiveLane() = default;

  virtual Lane& lane() = 0;

  // Makes ready all that does not depend on the number of `work` in the lane.
  // Returns what a device launches, or nullptr if the host does the collective.
  // Called without the mutex.
  virtual absl::StatusOr<std::shared_ptr<Launch>> Prepare(
      const std::shared_ptr<IssuedWork>& work) = 0;

  // Takes in `work` as the next turn and begins it if that needs no waiting.
  // `launch` is what Prepare returned. Releases the mutex while a device's
  // library is called.
  virtual void IssueUnlocking(LaneGroup& group,
                              const std::shared_ptr<IssuedWork>& work,
                              uint64_t fingerprint,
                              std::shared_ptr<Launch> launch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;

  // Goes on with the lane, or lets time pass, for a caller that waits for
  // `work`. Returns true if the caller has waited long enough. Releases the
  // mutex meanwhile.
  virtual bool AwaitUnlocking(LaneGroup& group, const IssuedWork& work,
                              Waiting& waiting)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;

  // Looks which turns are done, or lets the lane's thread do them, for a caller
  // that does not wait. Releases the mutex while a device's library is called.
  virtual void PollUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;

  // Returns UNIMPLEMENTED, with the advice to do `instead`, if this lane does
  // not support streams.
  virtual absl::Status CheckStreams(absl::string_view instead) const = 0;

  // Makes `stream` wait for `work`, unless that has ended. Waits until `work`
  // is on the device. Called without the mutex. Returns the error of
  // CheckStreams if this lane does not support streams.
  virtual absl::Status WaitOnStream(LaneGroup& group, const IssuedWork& work,
                                    Stream stream) = 0;

  // Is called when the transport is connected.
  virtual void OnConnected(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;

  // Is called when the ranks of a strict group agree on collectives up to
  // number `agreed`.
  virtual void OnAgreed(LaneGroup& group, uint64_t agreed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;

  // Returns the marks of what was issued since the last call, or nothing if the
  // transport compares what the ranks do.
  virtual std::vector<Mark> TakeMarks() = 0;

  // Returns true if it is known which turns were done at `time`, or if
  // FailureTiming::look has passed since then.
  virtual bool Knows(const LaneGroup& group, SteadyTime time) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;
  // Makes the lane's thread look, so that Knows becomes true.
  virtual void SeekToKnow(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;
  // Finds out which turns are done by now. Gives up after FailureTiming::look,
  // since the device's library may hang. Releases the mutex while it waits.
  virtual void CatchUpUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;

  // Returns true if the transport's destructor leaves an idle group in order,
  // and an idle group should therefore not be cancelled.
  virtual bool LeavesInOrder() const = 0;
  // Cancels the transport, for good.
  virtual void Cancel() = 0;
  // Drops all that a device was given. It is the last call, made without the
  // mutex after the lane's thread has ended.
  virtual void Close() = 0;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_COLLECTIVE_LANE_H_
