#include "lockstep/collective/engine/launch_queue.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/catch_all.h"

namespace lockstep::internal_collective {
namespace {

// The greatest number of collectives that are on the device and not done. More
// of them wait here, because CUDA would make them wait with its locks held.
constexpr size_t kMostBegun = 256;

}  // namespace

void LaunchQueue::Add(std::shared_ptr<Launch> launch) {
  MutexLock lock(mutex_);
  launches_.push_back(std::move(launch));
}

void LaunchQueue::Open() {
  MutexLock lock(mutex_);
  open_ = true;
}

LaunchQueue::Snapshot LaunchQueue::LaunchMore() {
  MutexLock lock(mutex_);
  if (!asking_) {
    asking_ = true;
    LaunchAllUnlocking();
    asking_ = false;
  }
  return State();
}

LaunchQueue::Snapshot LaunchQueue::Look() {
  MutexLock lock(mutex_);
  if (!asking_) {
    asking_ = true;
    const SteadyTime begin = SteadyNow();
    LaunchAllUnlocking();
    DropDoneUnlocking();
    LaunchAllUnlocking();
    as_of_ = begin;
    asking_ = false;
  }
  return State();
}

LaunchQueue::Snapshot LaunchQueue::State() const {
  Snapshot snapshot;
  snapshot.done = done_;
  snapshot.ended = ended_;
  snapshot.queued = ended_ + begun_ - (unqueued_ ? 1 : 0);
  snapshot.launches = !cancelled_ && failure_.ok() &&
                      (unqueued_ || (open_ && begun_ < launches_.size()));
  snapshot.failure = failure_;
  snapshot.as_of = as_of_;
  return snapshot;
}

absl::StatusOr<Launch::State> LaunchQueue::AskUnlocking(
    const std::shared_ptr<Launch>& launch,
    absl::StatusOr<Launch::State> (Launch::*question)()) {
  // No other thread takes the launch out of the queue meanwhile, since asking_
  // is set.
  Launch& asked = *launch;
  ++users_;
  absl::StatusOr<Launch::State> state = Launch::State::kLaunching;
  {
    const MutexUnlock unlock(mutex_);
    state = CatchAll("asking the device's library",
                     [&] { return (asked.*question)(); });
  }
  Leave();
  return state;
}

bool LaunchQueue::MayLaunch() const {
  return open_ && !unqueued_ && !cancelled_ && failure_.ok() &&
         begun_ < std::min(launches_.size(), kMostBegun);
}

void LaunchQueue::LaunchAllUnlocking() {
  const auto begun = [this](const absl::StatusOr<Launch::State>& state)
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                           unqueued_ = !state.ok() ||
                                       *state == Launch::State::kLaunching;
                           failure_.Update(state.status());
                         };
  if (unqueued_ && failure_.ok() && !cancelled_) {
    begun(AskUnlocking(launches_[begun_ - 1], &Launch::Look));
  }
  while (MayLaunch()) {
    const auto state = AskUnlocking(launches_[begun_], &Launch::Begin);
    ++begun_;
    begun(state);
  }
}

void LaunchQueue::DropDoneUnlocking() {
  while (begun_ > 0 && (cancelled_ || begun_ > 1 || !unqueued_)) {
    const auto state = AskUnlocking(launches_.front(), &Launch::Look);
    // After an error, the device may still use the collective's memory.
    if (!cancelled_) failure_.Update(state.status());
    if (!state.ok() || *state != Launch::State::kDone) return;
    launches_.pop_front();
    --begun_;
    ++ended_;
    if (!cancelled_) done_ = ended_;
  }
  if (!cancelled_) return;
  DropAll();
}

void LaunchQueue::DropAll() {
  ended_ += launches_.size();
  launches_.clear();
  begun_ = 0;
  unqueued_ = false;
}

absl::Status LaunchQueue::WaitOnStream(uint64_t number, Stream stream) {
  std::shared_ptr<Launch> launch;
  {
    MutexLock lock(mutex_);
    if (number <= ended_) return absl::OkStatus();
    launch = launches_[number - ended_ - 1];
    ++users_;
  }
  absl::Status status = CatchAll("asking the device's library",
                                 [&] { return launch->WaitOnStream(stream); });
  launch = nullptr;
  MutexLock lock(mutex_);
  Leave();
  return status;
}

void LaunchQueue::Leave() {
  --users_;
  if (users_ == 0) changed_.NotifyAll();
}

void LaunchQueue::Cancel() {
  MutexLock lock(mutex_);
  cancelled_ = true;
}

void LaunchQueue::Close() {
  MutexLock lock(mutex_);
  cancelled_ = true;
  while (users_ > 0) changed_.Wait(mutex_);
  DropAll();
}

}  // namespace lockstep::internal_collective
