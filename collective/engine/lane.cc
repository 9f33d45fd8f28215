#include "lockstep/collective/engine/lane.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>  // NOLINT: lanes
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/quiet_thread.h"

namespace lockstep::internal_collective {

Lane::Lane(const LaneGroup& group, const LaneId& id)
    : id_(id), watchdog_(group.timing, group.options.slow, /*asks_why=*/true) {}

const Turn* Lane::Find(uint64_t number) const {
  for (const Turn& turn : turns_) {
    if (turn.number == number) return &turn;
  }
  const Turn& past = past_[number % kRemembered];
  return past.work != nullptr && past.number == number ? &past : nullptr;
}

void Lane::Enter(LaneGroup& group, const std::shared_ptr<IssuedWork>& work,
                 uint64_t fingerprint) {
  turns_.push_back({work, ++issued_, fingerprint});
  if (turns_.size() == 1) watchdog_.Start(work->issued);
  group.FailIfLeft(*this);
}

void Lane::Want(LaneGroup& group, SteadyTime from) {
  if (turns_.empty() || wanted_from_ <= from) return;
  wanted_from_ = from;
  EnsureThread(group);
  WakeWhenWanted();
}

void Lane::EnsureThread(LaneGroup& /*group*/) {}

void Lane::WakeWhenWanted() {
  if (alarm_ != nullptr && wanted()) alarm_->Set(wanted_from_);
}

void Lane::Wake() {
  if (alarm_ != nullptr) alarm_->Set(SteadyTime());
}

void Lane::SleepUnlocking(LaneGroup& group) {
  const MutexUnlock unlock(group.mutex);
  alarm_->Sleep();
}

void Lane::StartThread(LaneGroup& group, std::function<void()> first) {
  const auto fail = [&group](const absl::Status& why) {
    group.control.Fail(group.options.key, group.Broke(why));
  };
  absl::StatusOr<std::unique_ptr<Alarm>> alarm = Alarm::Create();
  if (!alarm.ok()) return fail(alarm.status());
  alarm_ = *std::move(alarm);
  absl::StatusOr<std::thread> thread = internal_base::StartQuietThread(
      "lockstep-lane",
      [this, &group, first = std::move(first)] { RunThread(group, first); });
  if (!thread.ok()) return fail(thread.status());
  thread_ = *std::move(thread);
}

// An exception here fails the group. The thread goes on until the group is
// stopping, since operations may still be in the transport or on the device.
void Lane::RunThread(LaneGroup& group, const std::function<void()>& first) {
  const auto guarded = [&group](const auto& what) {
    const absl::Status status = CatchAll("a thread of the group", [&what] {
      what();
      return absl::OkStatus();
    });
    if (!status.ok()) group.GiveUp(status);
  };
  if (first) guarded(first);
  while (true) {
    {
      MutexLock lock(group.mutex);
      if (group.phase == LaneGroup::Phase::kStopping) return;
    }
    guarded([this, &group] {
      MutexLock lock(group.mutex);
      while (group.phase != LaneGroup::Phase::kStopping) TendUnlocking(group);
    });
  }
}

void Lane::JoinThread() {
  if (thread_.joinable()) thread_.join();
}

void Lane::Stick(const absl::Status& error) {
  MoveTo(State::kStuck);
  watchdog_.SetError(error, SteadyNow());
}

void Lane::Finish(LaneGroup& group) {
  Turn& turn = past_[turns_.front().number % kRemembered];
  turn = std::move(turns_.front());
  turns_.pop_front();
  ++done_;
  const SteadyTime now = SteadyNow();
  watchdog_.Start(now);
  if (turns_.empty()) Unwant();
  group.End(*turn.work, absl::OkStatus(), now);
}

void Lane::FailFirst(LaneGroup& group) {
  const std::shared_ptr<IssuedWork> work = std::move(turns_.front().work);
  turns_.pop_front();
  group.End(*work, group.failure);
}

void Lane::FailBehind(LaneGroup& group, size_t kept) {
  const auto first = turns_.begin() + static_cast<std::ptrdiff_t>(kept);
  for (auto turn = first; turn != turns_.end(); ++turn) {
    group.End(*turn->work, group.failure);
  }
  turns_.erase(first, turns_.end());
}

}  // namespace lockstep::internal_collective
