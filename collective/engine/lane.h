// A lane is a sequence of operations of a group that are done one after the
// other. The group's collectives are one lane. The messages to one rank are
// another lane, and so are the messages from one rank.
//
// A lane belongs to its group, which calls the lane with the group's mutex
// held. A lane releases the mutex while it waits, and while it calls a
// transport or a device. Only Transport::Post is called with the mutex held,
// since it does not wait. The comment of a function says if the function
// releases the mutex. When such a function returns, anything that the mutex
// guards may have changed.
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

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/engine/alarm.h"
#include "lockstep/collective/engine/issued_work.h"
#include "lockstep/collective/engine/watchdog.h"

namespace lockstep::internal_collective {

class Group;

// An operation in one of its lanes.
struct Turn {
  std::shared_ptr<IssuedWork> work;
  uint64_t number = 0;       // in the lane, from 1
  uint64_t fingerprint = 0;  // must be the same on all its ranks
};

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

  // For Group::AwaitChange: the last time at which the wait has looked for
  // operations that are late.
  SteadyTime looked_at = {};

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

// A lane at this rank, with its thread if it needs one.
// Requires: the group's mutex is held in all calls, unless a function says
// otherwise. The lane outlives its thread, which JoinThread waits for.
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
  //   | kIdle    | kStuck   | the same, where no thread waits in a turn       |
  //
  // A lane that is stuck does no further turn: its group is going to fail, and
  // the watchdog has the error.
  enum class State { kIdle, kRunning, kStuck };

  // Requires: `group` outlives this.
  Lane(Group& group, const LaneId& id);
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
  // Returns the turn that expires first.
  // Requires: the lane is not empty.
  const Turn& Soonest() const;

  // Returns the first time after `after` at which an operation becomes slow or
  // expires.
  SteadyTime NextLook(SteadyTime after) const;

  // Takes in that a caller waits for `work` from now on: its time counts, and
  // that of the turns before it. Does nothing if the lane does not have it.
  void CountUpTo(const IssuedWork& work, SteadyTime now);

  // Takes in `work` as the next turn, which Begin then gets.
  Turn Enter(const std::shared_ptr<IssuedWork>& work, uint64_t fingerprint);
  // Begins the turn that was entered last, if that needs no waiting. Releases
  // the mutex while it calls other ranks, a device's library, or the transport
  // (except for Transport::Post). So the turn may have failed with the group
  // when it returns.
  virtual void Begin(const Turn& turn) = 0;

  // Goes on with the lane, or lets time pass, for a caller that waits for
  // `work`. Returns true if the caller has waited long enough. Releases the
  // mutex meanwhile.
  virtual bool Await(const IssuedWork& work, Waiting& waiting);

  // Finds out which turns are done, or lets the lane's thread do them, for a
  // caller that does not wait. Releases the mutex while a device's library is
  // called.
  virtual void Poll() { Want(); }

  // Takes in that the group has failed. Ends the turns that no thread and no
  // device has begun, or lets the lane's thread end them. They end with the
  // group's failure, except those that the exchange has already done, which
  // end well.
  virtual void Fail() = 0;

  // Waits, after the group has failed, until no caller's memory is in use.
  // Releases the mutex while it waits.
  virtual void AwaitIdle() = 0;

  // Returns the time up to which it is known which turns are done.
  virtual SteadyTime KnownAsOf(SteadyTime now) const { return now; }

  // Makes the lane's thread do its part from the time `from` on, until it has
  // nothing to do.
  void Want(SteadyTime from = {});

  // Starts the lane's thread, which calls `first`, and then Tend until the
  // group is stopping. Fails the group if the thread can't be started.
  void StartThread(std::function<void()> first = nullptr);
  // Sets the thread's alarm to the time from which it is wanted, if it is.
  void WakeWhenWanted();
  // Wakes the thread now, although it may be wanted only later.
  void Wake();
  // Waits for the thread's end. Called without the mutex, once no thread can be
  // started any more.
  void JoinThread();

  // Forgets the works of turns that are done, which refer to the group.
  void ForgetPast() { past_ = {}; }

 protected:
  // The time for which the lane's thread leaves a collective to its caller. A
  // caller that waits at once does it without another thread.
  static constexpr std::chrono::milliseconds kWaiterTakes{1};

  // Does what the lane's thread has to do now, or sleeps. Releases the mutex
  // while it waits, and while a transport or a device is called. A lane without
  // a thread has nothing to do.
  virtual void Tend() {}
  // Starts the thread if the lane has none and needs one.
  virtual void EnsureThread() {}

  bool has_thread() const { return thread_.joinable(); }
  // Returns true if the thread is wanted now or later.
  bool wanted() const { return wanted_from_ != kNever; }
  bool WantedBy(SteadyTime now) const {
    return wanted() && now >= wanted_from_;
  }
  void WantNothing() { wanted_from_ = kNever; }
  // Sleeps until the thread is woken. Releases the mutex meanwhile.
  void Sleep();

  void MoveTo(State state) { state_ = state; }
  // Takes in that the transport has failed in the first turn, and does no
  // further one.
  void KeepError(const absl::Status& error);

  // Ends the first turn well.
  void EndFirst();
  // Does the same, and then fails the group if a failure has waited for this
  // turn, or if a rank that the next turn needs has left.
  void Finish();
  // Ends the first turn with the group's failure.
  void FailFirst();
  // Ends all turns behind the first `kept` ones with the group's failure.
  void FailBehind(size_t kept);

  Group& group_;

 private:
  // The number of done turns that are kept, since another rank may still ask
  // for them.
  static constexpr size_t kRemembered = 8;
  static constexpr SteadyTime kNever = SteadyTime::max();

  void RunThread(const std::function<void()>& first);

  const LaneId id_;
  std::deque<Turn> turns_;
  // The last turns that are done. Turn n is at index n modulo the size.
  std::array<Turn, kRemembered> past_;
  uint64_t issued_ = 0;
  uint64_t done_ = 0;
  State state_ = State::kIdle;
  SteadyTime wanted_from_ = kNever;
  SteadyTime armed_for_ = kNever;  // the time of the alarm, until it has come
  Watchdog watchdog_;
  std::unique_ptr<Alarm> alarm_;  // on which the thread sleeps
  std::thread thread_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_LANE_H_
