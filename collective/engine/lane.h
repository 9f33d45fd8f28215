// A lane is a sequence of operations of a group that are done one after the
// other. The group's collectives are one lane. The messages to one rank are
// another lane, and so are the messages from one rank.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_LANE_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_LANE_H_

#include <array>
#include <chrono>  // NOLINT: base/steady_time.h speaks chrono
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>  // NOLINT: lanes

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/engine/alarm.h"
#include "lockstep/collective/engine/issued_work.h"
#include "lockstep/collective/engine/lane_group.h"
#include "lockstep/collective/engine/watchdog.h"

namespace lockstep::internal_collective {

// An operation in one of its lanes.
struct Turn {
  std::shared_ptr<IssuedWork> work;
  uint64_t number = 0;       // in the lane, from 1
  uint64_t fingerprint = 0;  // must be the same on all its ranks
};

// A lane at this rank, with its thread if it needs one.
// Requires: the group's mutex is held in all calls, unless a function says
// otherwise. The lane outlives its thread, which JoinThread waits for.
// Guarantees: the end of an operation allocates no memory.
// Thread-safety: the group's mutex guards all fields that can change.
class Lane {
 public:
  // The state of the first turn.
  //
  //   | from     | to       | when                                            |
  //   |----------|----------|-------------------------------------------------|
  //   | kIdle    | kRunning | a thread takes the turn into the transport      |
  //   | kRunning | kIdle    | the turn comes back, or fails with the group    |
  //   | kRunning | kStuck   | the transport fails before the group does       |
  //   | kIdle    | kStuck   | a device fails, in which no thread waits        |
  //
  // A lane that is stuck does no further turn: its group is going to fail, and
  // the watchdog has the error.
  enum class State { kIdle, kRunning, kStuck };

  Lane(const LaneGroup& group, const LaneId& id);
  virtual ~Lane() = default;

  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // May be called without the mutex.
  const LaneId& id() const { return id_; }

  // Returns the turns that have not ended.
  const std::deque<Turn>& turns() const { return turns_; }
  bool empty() const { return turns_.empty(); }
  const Turn& front() const { return turns_.front(); }
  uint64_t issued() const { return issued_; }
  // Returns the number of turns that have ended well.
  uint64_t done() const { return done_; }
  // Returns the number of turns that have ended, well or not.
  uint64_t ended() const { return issued_ - turns_.size(); }
  State state() const { return state_; }
  Watchdog& watchdog() { return watchdog_; }

  // Returns the turn with that number, or nullptr if it has not been issued or
  // was done too long ago.
  const Turn* Find(uint64_t number) const;

  // Returns the place of the first turn, with number 0 if there is none.
  PlaceId PlaceIn(const LaneGroup& group) const {
    return {group.options.key, id_, empty() ? 0 : front().number};
  }

  // Adds the next turn, without beginning it.
  void Enter(LaneGroup& group, const std::shared_ptr<IssuedWork>& work,
             uint64_t fingerprint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);

  // Makes the lane's thread do its part from the time `from` on, until it has
  // nothing to do.
  void Want(LaneGroup& group, SteadyTime from = {})
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);

  // Starts the lane's thread, which calls `first`, and then TendUnlocking until
  // the group is stopping. Fails the group if the thread can't be started.
  void StartThread(LaneGroup& group, std::function<void()> first = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);
  // Sets the thread's alarm to the time from which it is wanted, if it is.
  void WakeWhenWanted();
  // Wakes the thread now, although it may be wanted only later.
  void Wake();
  // Waits for the thread's end. Called without the mutex, once no thread can be
  // started any more.
  void JoinThread();

  // Forgets the works of turns that are done, which refer to the group.
  void ForgetPast() { past_ = {}; }

  // Ends the turns that no thread and no device has begun, with the group's
  // failure.
  virtual void Fail(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;

  // Waits, after the group has failed, until no caller's memory is in use.
  // Releases the mutex while it waits.
  virtual void AwaitIdleUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;

  // Returns the time up to which it is known which turns are done.
  virtual SteadyTime KnownAsOf(const LaneGroup& /*group*/,
                               SteadyTime now) const {
    return now;
  }

 protected:
  // The time for which the lane's thread leaves a collective to its caller. A
  // caller that waits at once does it without another thread.
  static constexpr std::chrono::milliseconds kWaiterTakes{1};

  // Does what the lane's thread has to do now, or sleeps. Releases the mutex
  // while it waits, and while a transport or a device is called.
  virtual void TendUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex) = 0;

  // Starts the thread if the lane has none and needs one.
  virtual void EnsureThread(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);

  bool has_thread() const { return thread_.joinable(); }
  // Returns true if the thread is wanted now or later.
  bool wanted() const { return wanted_from_ != kNever; }
  bool WantedBy(SteadyTime now) const {
    return wanted() && now >= wanted_from_;
  }
  void Unwant() { wanted_from_ = kNever; }
  // Sleeps until the thread is woken. Releases the mutex meanwhile.
  void SleepUnlocking(LaneGroup& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);

  void MoveTo(State state) { state_ = state; }
  // Takes in that the transport has failed and does no further turn.
  void Stick(const absl::Status& error);

  // Ends the first turn well. The caller then checks whether the group fails.
  void Finish(LaneGroup& group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);
  // Ends the first turn with the group's failure.
  void FailFirst(LaneGroup& group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);
  // Ends all turns behind the first `kept` ones with the group's failure.
  void FailBehind(LaneGroup& group, size_t kept)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);

 private:
  // The number of done turns that are kept, since another rank may still ask
  // for them.
  static constexpr size_t kRemembered = 8;
  static constexpr SteadyTime kNever = SteadyTime::max();

  void RunThread(LaneGroup& group, const std::function<void()>& first);

  const LaneId id_;
  std::deque<Turn> turns_;
  // The last turns that are done. Turn n is at index n modulo the size, so the
  // end of an operation allocates none.
  std::array<Turn, kRemembered> past_;
  uint64_t issued_ = 0;
  uint64_t done_ = 0;
  State state_ = State::kIdle;
  SteadyTime wanted_from_ = kNever;
  Watchdog watchdog_;
  std::unique_ptr<Alarm> alarm_;  // on which the thread sleeps
  std::thread thread_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_LANE_H_
