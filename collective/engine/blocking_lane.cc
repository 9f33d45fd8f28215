#include "lockstep/collective/engine/blocking_lane.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/steady_time.h"

namespace lockstep::internal_collective {

bool BlockingLane::CanRun(const LaneGroup& group) const {
  return group.connected && group.failure.ok() && state() == State::kIdle &&
         !empty();
}

void BlockingLane::TendUnlocking(LaneGroup& group) {
  if (wanted() && CanRun(group) && WantedBy(SteadyNow())) {
    RunFirstUnlocking(group);
  } else {
    SleepUnlocking(group);
  }
}

void BlockingLane::RunFirstUnlocking(LaneGroup& group) {
  MoveTo(State::kRunning);
  // The turn stays at this address while the lane runs.
  const Turn& turn = front();
  absl::Status status;
  {
    const MutexUnlock unlock(group.mutex);
    status = CatchAll("the transport", [&] { return Transfer(turn); });
  }
  MoveTo(State::kIdle);
  if (status.ok()) {
    FinishRun(group);
  } else if (!group.failure.ok()) {
    FailFirst(group);
  } else if (absl::IsResourceExhausted(status)) {
    group.FailOfItself(group.Blamed(Annotate(
        status,
        absl::StrCat(group.Describe(turn.work->op), " on rank ", group.rank))));
  } else {
    Stick(status);
  }
  group.changed.NotifyAll();
  if (CanRun(group)) WakeWhenWanted();
}

void BlockingLane::FinishRun(LaneGroup& group) {
  Finish(group);
  group.FailIfDue();
  group.FailIfLeft(*this);
}

// The transport uses the memory of the turn that it does until the call comes
// back. So that turn is kept.
void BlockingLane::Fail(LaneGroup& group) {
  FailBehind(group, state() == State::kRunning ? 1 : 0);
}

void BlockingLane::AwaitIdleUnlocking(LaneGroup& group) {
  while (state() == State::kRunning) group.changed.Wait(group.mutex);
}

}  // namespace lockstep::internal_collective
