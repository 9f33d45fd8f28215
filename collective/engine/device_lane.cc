#include "lockstep/collective/engine/device_lane.h"

#include <algorithm>
#include <chrono>  // NOLINT: base/steady_time.h speaks chrono
#include <memory>
#include <thread>  // NOLINT: to yield
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/engine/group.h"

namespace lockstep::internal_collective {
namespace {

// The time that a device may take to let go of cancelled collectives.
constexpr absl::Duration kAbortTakes = absl::Seconds(5);

// A wait for a device looks without a pause for kSpins. After that, its pauses
// grow with the time waited, up to kLongestPause.
constexpr std::chrono::milliseconds kSpins(2);
constexpr std::chrono::microseconds kLongestPause(500);

}  // namespace

DeviceLane::DeviceLane(Group& group, DeviceTransport& transport)
    : Lane(group, LaneId()), transport_(transport) {}

// ---- Issuing.

absl::StatusOr<std::shared_ptr<Launch>> DeviceLane::Prepare(
    const std::shared_ptr<IssuedWork>& work) {
  return transport_.Prepare({work, &work->op});
}

void DeviceLane::Begin(const Turn& turn) {
  if (group_.size > 1) {
    marks_.Add(turn.number, turn.fingerprint, turn.work->op);
  }
  queue_.Add(std::move(next_));
  LaunchLast();
}

void DeviceLane::LaunchLast() {
  group_.mutex.AssertHeld();
  LaunchQueue::Snapshot snapshot;
  {
    const MutexUnlock unlock(group_.mutex);
    snapshot = queue_.LaunchMore();
  }
  if (!snapshot.launches && snapshot.failure.ok()) return;
  const bool alone = snapshot.queued + 1 >= issued();
  Want(alone ? SteadyNow() + kWaiterTakes : SteadyTime());
}

void DeviceLane::OnConnected() {
  queue_.Open();
  Want();
}

// ---- Looking for what is done.

LaunchQueue::Snapshot DeviceLane::Look() {
  group_.mutex.AssertHeld();
  LaunchQueue::Snapshot seen;
  {
    const MutexUnlock unlock(group_.mutex);
    seen = queue_.Look();
  }
  Settle(seen);
  return seen;
}

// Ends the turns that the device is done with, and those of a failed group that
// the device has let go of. Takes in an error of the device's library.
void DeviceLane::Settle(const LaunchQueue::Snapshot& seen) {
  group_.mutex.AssertHeld();
  seen_ = std::max(seen_, seen.as_of);
  while (!empty() && ended() < seen.done) {
    EndFirst();
    group_.FailIfLeft(*this);
  }
  if (!group_.failure.ok()) {
    const bool hangs = Passed(group_.failed_at, kAbortTakes, SteadyNow());
    while (!empty() && (hangs || ended() < seen.ended)) FailFirst();
  } else if (!seen.failure.ok() && state() == State::kIdle) {
    if (absl::IsResourceExhausted(seen.failure)) {
      group_.FailOfItself(group_.Blamed(seen.failure));
    } else {
      KeepError(seen.failure);
    }
  }
  // This comes last, so that turns that are done end well before a failure.
  group_.FailIfDue();
}

void DeviceLane::CatchUp() {
  Waiting waiting;
  const SteadyTime begin = waiting.since();
  while (Look().as_of < begin &&
         !Passed(begin, group_.timing.look, SteadyNow())) {
    Pause(waiting);
  }
}

bool DeviceLane::Knows(SteadyTime time) const {
  return empty() || seen_ >= time ||
         Passed(time, group_.timing.look, SteadyNow());
}

SteadyTime DeviceLane::KnownAsOf(SteadyTime now) const {
  return std::max(seen_, now - absl::ToChronoNanoseconds(group_.timing.look));
}

void DeviceLane::Tend() {
  group_.mutex.AssertHeld();
  if (!WantedBy(SteadyNow())) return Sleep();
  WantNothing();
  Waiting waiting;
  while (group_.phase != Group::Phase::kStopping) {
    const LaunchQueue::Snapshot seen = Look();
    const bool ends = !group_.failure.ok() && !empty();
    if (!ends && !seen.launches) return;
    Pause(waiting);
  }
}

// ---- Waiting.

bool DeviceLane::Await(const IssuedWork& work, Waiting& waiting) {
  Look();
  if (work.open == 0) return false;
  if (!waiting.for_ever() && SteadyNow() >= waiting.until()) return true;
  Pause(waiting);
  return false;
}

void DeviceLane::Pause(Waiting& waiting) {
  group_.mutex.AssertHeld();
  const auto waited = SteadyNow() - waiting.since();
  if (waited < kSpins) {
    const MutexUnlock unlock(group_.mutex);
    std::this_thread::yield();
  } else {
    const auto pause =
        std::min<SteadyTime::duration>(waited / 64, kLongestPause);
    group_.changed.WaitUntil(group_.mutex,
                             std::min(waiting.until(), SteadyNow() + pause));
  }
}

absl::Status DeviceLane::WaitOnStream(const IssuedWork& work, Stream stream) {
  {
    MutexLock lock(group_.mutex);
    Waiting waiting;
    while (work.open > 0 && Look().queued < work.number) Pause(waiting);
    if (work.open > 0) {
      LOCKSTEP_RETURN_IF_ERROR(group_.failure);
      Look();
    }
    if (work.open == 0) return absl::OkStatus();
  }
  return queue_.WaitOnStream(work.number, stream);
}

// ---- Failing.

// Turns on the device end when the device lets go of them, and the turns behind
// them end with them. The lane's thread looks for that.
void DeviceLane::Fail() { Want(); }

void DeviceLane::AwaitIdle() {
  Waiting waiting;
  while (!empty()) {
    Look();
    Pause(waiting);
  }
}

}  // namespace lockstep::internal_collective
