#include "lockstep/collective/engine/device_lane.h"

#include <algorithm>
#include <chrono>  // NOLINT: base/steady_time.h speaks chrono
#include <cstdint>
#include <limits>
#include <memory>
#include <thread>  // NOLINT: to yield
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/operation_log.h"

namespace lockstep::internal_collective {
namespace {

// The time that a device may take to let go of cancelled collectives.
constexpr absl::Duration kAbortTakes = absl::Seconds(5);

// A wait for a device looks without a pause for kSpins. After that, its pauses
// grow with the time waited, up to kLongestPause.
constexpr std::chrono::milliseconds kSpins(2);
constexpr std::chrono::microseconds kLongestPause(500);

}  // namespace

DeviceLane::DeviceLane(const LaneGroup& group, DeviceTransport& transport)
    : Lane(group, LaneId()),
      transport_(transport),
      agrees_(group.options.strict && group.size > 1),
      agreed_(agrees_ ? 0 : std::numeric_limits<uint64_t>::max()) {}

// ---- Issuing.

absl::StatusOr<std::shared_ptr<Launch>> DeviceLane::Prepare(
    const std::shared_ptr<IssuedWork>& work) {
  return transport_.Prepare({work, &work->op});
}

void DeviceLane::IssueUnlocking(LaneGroup& group,
                                const std::shared_ptr<IssuedWork>& work,
                                uint64_t fingerprint,
                                std::shared_ptr<Launch> launch) {
  Enter(group, work, fingerprint);
  work->number = issued();
  if (group.size > 1) marks_.Add(work->number, fingerprint, work->op);
  if (agrees_) group.control.SendMarks(group.options.key, marks_.Take());
  queue_.Add(std::move(launch));
  LaunchLastUnlocking(group);
}

void DeviceLane::LaunchLastUnlocking(LaneGroup& group) {
  LaunchQueue::Progress progress;
  {
    const MutexUnlock unlock(group.mutex);
    progress = queue_.LaunchMore();
  }
  if (!progress.launches && progress.failure.ok()) return;
  const bool alone = progress.queued + 1 >= issued();
  Want(group, alone ? SteadyNow() + kWaiterTakes : SteadyTime());
}

void DeviceLane::OnConnected(LaneGroup& group) {
  queue_.AllowUpTo(agreed_);
  Want(group);
}

void DeviceLane::OnAgreed(LaneGroup& group, uint64_t agreed) {
  if (!agrees_) return;
  agreed_ = std::max(agreed_, agreed);
  if (!group.connected) return;
  queue_.AllowUpTo(agreed_);
  Want(group);
}

// ---- Looking for what is done.

LaunchQueue::Progress DeviceLane::LookUnlocking(LaneGroup& group) {
  LaunchQueue::Progress seen;
  {
    const MutexUnlock unlock(group.mutex);
    seen = queue_.Look();
  }
  Settle(group, seen);
  return seen;
}

// Ends the turns that the device is done with, and those of a failed group that
// the device has let go of. Takes in an error of the device's library.
void DeviceLane::Settle(LaneGroup& group, const LaunchQueue::Progress& seen) {
  seen_ = std::max(seen_, seen.as_of);
  while (!empty() && ended() < seen.done) {
    Finish(group);
    group.FailIfLeft(*this);
  }
  if (!group.failure.ok()) {
    const bool hangs = Passed(group.failed_at, kAbortTakes, SteadyNow());
    while (!empty() && (hangs || ended() < seen.ended)) FailFirst(group);
  } else if (!seen.failure.ok() && state() == State::kIdle) {
    if (absl::IsResourceExhausted(seen.failure)) {
      group.FailOfItself(group.Blamed(seen.failure));
    } else {
      Stick(seen.failure);
    }
  }
  // This comes last, so that turns that are done end well before a failure.
  group.FailIfDue();
}

void DeviceLane::CatchUpUnlocking(LaneGroup& group) {
  Waiting waiting;
  const SteadyTime begin = waiting.since();
  while (LookUnlocking(group).as_of < begin &&
         !Passed(begin, group.timing.look, SteadyNow())) {
    PauseUnlocking(group, waiting);
  }
}

bool DeviceLane::Knows(const LaneGroup& group, SteadyTime time) const {
  return empty() || seen_ >= time ||
         Passed(time, group.timing.look, SteadyNow());
}

SteadyTime DeviceLane::KnownAsOf(const LaneGroup& group, SteadyTime now) const {
  return std::max(seen_, now - absl::ToChronoNanoseconds(group.timing.look));
}

void DeviceLane::TendUnlocking(LaneGroup& group) {
  if (!WantedBy(SteadyNow())) return SleepUnlocking(group);
  Unwant();
  Waiting waiting;
  while (group.phase != LaneGroup::Phase::kStopping) {
    const LaunchQueue::Progress seen = LookUnlocking(group);
    const bool ends = !group.failure.ok() && !empty();
    if (!ends && !seen.launches) return;
    PauseUnlocking(group, waiting);
  }
}

// ---- Waiting.

bool DeviceLane::AwaitUnlocking(LaneGroup& group, const IssuedWork& work,
                                Waiting& waiting) {
  LookUnlocking(group);
  if (work.open == 0) return false;
  if (!waiting.for_ever() && SteadyNow() >= waiting.until()) return true;
  PauseUnlocking(group, waiting);
  return false;
}

void DeviceLane::PauseUnlocking(LaneGroup& group, Waiting& waiting) {
  const auto waited = SteadyNow() - waiting.since();
  if (waited < kSpins) {
    const MutexUnlock unlock(group.mutex);
    std::this_thread::yield();
  } else {
    const auto pause =
        std::min<SteadyTime::duration>(waited / 64, kLongestPause);
    group.changed.WaitUntil(group.mutex,
                            std::min(waiting.until(), SteadyNow() + pause));
  }
}

absl::Status DeviceLane::WaitOnStream(LaneGroup& group, const IssuedWork& work,
                                      Stream stream) {
  {
    MutexLock lock(group.mutex);
    Waiting waiting;
    while (work.open > 0 && LookUnlocking(group).queued < work.number) {
      PauseUnlocking(group, waiting);
    }
    if (work.open > 0) {
      LOCKSTEP_RETURN_IF_ERROR(group.failure);
      LookUnlocking(group);
    }
    if (work.open == 0) return absl::OkStatus();
  }
  return queue_.WaitOnStream(work.number, stream);
}

// ---- Failing.

// Turns on the device end when the device lets go of them, and the turns behind
// them end with them. The lane's thread looks for that.
void DeviceLane::Fail(LaneGroup& group) { Want(group); }

void DeviceLane::Cancel() {
  queue_.Cancel();
  transport_.Cancel();
}

void DeviceLane::AwaitIdleUnlocking(LaneGroup& group) {
  Waiting waiting;
  while (!empty()) {
    CatchAll("ending a group", [this, &group]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      LookUnlocking(group);
      return absl::OkStatus();
    }).IgnoreError();
    PauseUnlocking(group, waiting);
  }
}

}  // namespace lockstep::internal_collective
