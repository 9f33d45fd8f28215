// A CollectiveLane is what a group's engine needs of the lane of its
// collectives, whether the host does them (host_lane.h) or a device
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

// A caller's wait for an operation. One that has no end reads the clock when it
// turns out to take time, so that a caller that does the operation itself does
// not pay for it. Thread-safety: not thread-safe.
class Waiting {
 public:
  // A wait for ever.
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
  // A century away if the wait is for ever.
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

// Thread-safety: that of Lane.
class CollectiveLane {
 public:
  virtual ~CollectiveLane() = default;

  virtual Lane& lane() = 0;

  // Makes ready what needs no number. Returns what a device launches, or
  // nullptr. Called without the mutex.
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

  // Looks what is done, or has it done, for a caller that does not wait.
  // Releases the mutex while a device's library is called.
  virtual void PollUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;

  // Returns UNIMPLEMENTED, and says to do `instead`, if this lane has nothing
  // to do with streams.
  virtual absl::Status CheckStreams(absl::string_view instead) const = 0;

  // Makes `stream` wait for `work`, unless that has ended. Waits until it is on
  // the device. Called without the mutex. Requires CheckStreams.
  virtual absl::Status WaitOnStream(LaneGroup& group, const IssuedWork& work,
                                    Stream stream) = 0;

  // The transport is connected.
  virtual void OnConnected(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;

  // The ranks of a strict group agree on collectives up to number `agreed`.
  virtual void OnAgreed(LaneGroup& group, uint64_t agreed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;

  // Returns the marks of what was issued since the last call, where nothing
  // else compares what the ranks do.
  virtual std::vector<Mark> TakeMarks() = 0;

  // Returns true if it is known what was done at `time`.
  virtual bool Knows(const LaneGroup& group, SteadyTime time) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;
  // Has the lane's thread see to it that Knows becomes true.
  virtual void SeekToKnow(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;
  // Sees what is done by now, unless the device's library hangs. Releases the
  // mutex while it waits.
  virtual void CatchUpUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;

  // Returns true if a group that has nothing to do any more is left in order by
  // the transport's destructor, without Cancel.
  virtual bool LeavesInOrder() const = 0;
  // Cancels the transport, for good.
  virtual void Cancel() = 0;
  // Lets go of all that a device was given. It is the last call, without the
  // mutex, when the lane's thread has ended.
  virtual void Close() = 0;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_COLLECTIVE_LANE_H_
