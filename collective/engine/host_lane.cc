#include "lockstep/collective/engine/host_lane.h"

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/engine/group.h"

namespace lockstep::internal_collective {

void HostLane::Begin(const Turn& turn) {
  bool posted = false;
  if (turns().size() == 1 && CanRun()) {
    const absl::Status status = CatchAll("the transport", [&] {
      posted = transport_.Post(turn.work->op, turn.fingerprint);
      return absl::OkStatus();
    });
    if (!status.ok()) return TakeError(turn, status);
  }
  // A caller that waits finishes a posted operation. If there is none, the
  // lane's thread finishes it from the next tick on. It begins at once with
  // what the caller won't wait for.
  const bool waits = turn.work->op.waits_within == absl::ZeroDuration();
  if (!posted) Want(waits ? turn.work->issued + kWaiterTakes : SteadyTime());
}

bool HostLane::Await(const IssuedWork& work, Waiting& waiting) {
  if (!waiting.for_ever()) {
    Want();
  } else if (CanRun()) {
    RunFirst();
    return false;
  }
  return Lane::Await(work, waiting);
}

bool BlockingLane::CanRun() const {
  group_.mutex.AssertHeld();
  return group_.connected && group_.failure.ok() && state() == State::kIdle &&
         !empty();
}

void BlockingLane::RunFirst() {
  group_.mutex.AssertHeld();
  MoveTo(State::kRunning);
  // The turn stays at this address while the lane runs.
  const Turn& turn = front();
  absl::Status status;
  {
    const MutexUnlock unlock(group_.mutex);
    status = CatchAll("the transport", [&] { return Transfer(turn); });
  }
  MoveTo(State::kIdle);
  if (status.ok()) {
    Finish();
  } else if (!group_.failure.ok()) {
    FailFirst();
  } else {
    TakeError(turn, status);
  }
  group_.changed.NotifyAll();
  if (CanRun()) WakeWhenWanted();
}

void BlockingLane::TakeError(const Turn& turn, const absl::Status& error) {
  if (!absl::IsResourceExhausted(error)) return KeepError(error);
  group_.FailOfItself(
      group_.Blamed(Annotate(error, absl::StrCat(group_.Describe(turn.work->op),
                                                 " on rank ", group_.rank))));
}

void BlockingLane::Tend() {
  if (wanted() && CanRun() && WantedBy(SteadyNow())) {
    RunFirst();
  } else {
    Sleep();
  }
}

// The transport uses the memory of the turn that it does until the call comes
// back. So that turn is kept.
void BlockingLane::Fail() { FailBehind(state() == State::kRunning ? 1 : 0); }

void BlockingLane::AwaitIdle() {
  group_.mutex.AssertHeld();
  while (state() == State::kRunning) group_.changed.Wait(group_.mutex);
}

}  // namespace lockstep::internal_collective
