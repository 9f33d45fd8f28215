#include "lockstep/collective/engine/lane.h"

#include <algorithm>
#include <chrono>  // NOLINT: base/steady_time.h speaks chrono
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>  // NOLINT: lanes
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/quiet_thread.h"
#include "lockstep/collective/engine/group.h"

namespace lockstep::internal_collective {
namespace {

constexpr std::chrono::milliseconds kLooksAgain(50);

}  // namespace

Lane::Lane(Group& group, const LaneId& id)
    : group_(group),
      id_(id),
      watchdog_(group.timing, group.options.slow, /*asks_why=*/true) {}

// ---- Turns.

const Turn* Lane::Find(uint64_t number) const {
  for (const Turn& turn : turns_) {
    if (turn.number == number) return &turn;
  }
  const Turn& past = past_[number % kRemembered];
  return past.work != nullptr && past.number == number ? &past : nullptr;
}

SteadyTime Lane::NextLook(SteadyTime after) const {
  SteadyTime next = SteadyTime::max();
  const auto consider = [after, &next](SteadyTime time) {
    if (time > after) next = std::min(next, time);
  };
  if (turns_.empty()) return next;
  consider(watchdog_.BecomesSlowAt());
  // The watchdog waits for rank 0 to explain an error, but not for ever.
  if (!watchdog_.error().ok()) consider(SteadyNow() + kLooksAgain);
  for (const Turn& turn : turns_) consider(turn.work->expires);
  return next;
}

const Turn& Lane::Soonest() const {
  return *std::min_element(turns_.begin(), turns_.end(),
                           [](const Turn& a, const Turn& b) {
                             return a.work->expires < b.work->expires;
                           });
}

Turn Lane::Enter(const std::shared_ptr<IssuedWork>& work,
                 uint64_t fingerprint) {
  group_.mutex.AssertHeld();
  Turn turn = {work, ++issued_, fingerprint};
  turns_.push_back(turn);
  if (id_.collective()) work->number = issued_;
  if (turns_.size() == 1) watchdog_.Start(work->counts_from);
  group_.FailIfLeft(*this);
  return turn;
}

void Lane::CountUpTo(const IssuedWork& work, SteadyTime now) {
  const auto last = std::find_if(
      turns_.begin(), turns_.end(),
      [&work](const Turn& turn) { return turn.work.get() == &work; });
  if (last == turns_.end()) return;
  for (auto turn = turns_.begin(); turn <= last; ++turn) {
    turn->work->CountFrom(now);
  }
  watchdog_.CountFrom(now);
}

void Lane::EndFirst() {
  group_.mutex.AssertHeld();
  Turn& turn = past_[turns_.front().number % kRemembered];
  turn = std::move(turns_.front());
  turns_.pop_front();
  ++done_;
  const SteadyTime now = SteadyNow();
  watchdog_.Start(
      turns_.empty() ? now : std::max(now, turns_.front().work->counts_from));
  if (turns_.empty()) WantNothing();
  group_.End(*turn.work, absl::OkStatus(), now);
}

void Lane::Finish() {
  group_.mutex.AssertHeld();
  EndFirst();
  group_.FailIfDue();
  group_.FailIfLeft(*this);
}

void Lane::KeepError(const absl::Status& error) {
  MoveTo(State::kStuck);
  watchdog_.SetError(error, SteadyNow());
}

void Lane::FailFirst() {
  group_.mutex.AssertHeld();
  const std::shared_ptr<IssuedWork> work = std::move(turns_.front().work);
  turns_.pop_front();
  group_.End(*work, group_.failure);
}

void Lane::FailBehind(size_t kept) {
  group_.mutex.AssertHeld();
  const auto first = turns_.begin() + static_cast<std::ptrdiff_t>(kept);
  for (auto turn = first; turn != turns_.end(); ++turn) {
    group_.End(*turn->work, group_.failure);
  }
  turns_.erase(first, turns_.end());
}

bool Lane::Await(const IssuedWork& /*work*/, Waiting& waiting) {
  group_.mutex.AssertHeld();
  return group_.AwaitChange(waiting);
}

// ---- The thread.

void Lane::Want(SteadyTime from) {
  if (turns_.empty() || wanted_from_ <= from) return;
  wanted_from_ = from;
  EnsureThread();
  WakeWhenWanted();
}

// An alarm for an earlier time is left as it is, since setting one costs more
// than a small collective. When it wakes the thread, Sleep sets it anew.
void Lane::WakeWhenWanted() {
  if (alarm_ == nullptr || wanted_from_ >= armed_for_) return;
  armed_for_ = wanted_from_;
  alarm_->Set(armed_for_);
}

void Lane::Wake() {
  if (alarm_ != nullptr) alarm_->Set(SteadyTime());
}

void Lane::Sleep() {
  group_.mutex.AssertHeld();
  // If the thread is wanted already, it waits for another thread, which wakes
  // it.
  if (!WantedBy(SteadyNow())) WakeWhenWanted();
  {
    const MutexUnlock unlock(group_.mutex);
    alarm_->Sleep();
  }
  armed_for_ = kNever;
}

void Lane::StartThread(std::function<void()> first) {
  const auto fail = [this](const absl::Status& why) {
    group_.control.Fail(group_.options.key, group_.Broke(why));
  };
  absl::StatusOr<std::unique_ptr<Alarm>> alarm = Alarm::Create();
  if (!alarm.ok()) return fail(alarm.status());
  alarm_ = *std::move(alarm);
  absl::StatusOr<std::thread> thread = internal_base::StartQuietThread(
      "lockstep-lane", [this, first = std::move(first)] { RunThread(first); });
  if (!thread.ok()) return fail(thread.status());
  thread_ = *std::move(thread);
}

void Lane::RunThread(const std::function<void()>& first) {
  if (first) first();
  MutexLock lock(group_.mutex);
  while (group_.phase != Group::Phase::kStopping) Tend();
}

void Lane::JoinThread() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace lockstep::internal_collective
