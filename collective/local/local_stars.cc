#include "lockstep/collective/local/local_stars.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT: the one of the stars
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/end_process.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/quiet_thread.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"

namespace lockstep::internal_collective {
namespace {

using Peers = std::shared_ptr<const std::vector<Peer>>;

Peers MakePeers(int size) {
  std::vector<Peer> peers(size);
  for (int rank = 0; rank < size; ++rank) peers[rank].rank = rank;
  return std::make_shared<const std::vector<Peer>>(std::move(peers));
}

// The ranks of a job, and the events that have yet to reach them.
// Thread-safety: thread-safe. At most one thread at a time calls listeners.
class LocalJob {
 public:
  LocalJob(int size, const LocalStarOptions& options)
      : options_(options), ticks_(size), listeners_(size), present_(size) {}
  ~LocalJob() {
    {
      MutexLock lock(mutex_);
      present_ = 0;
      changed_.NotifyAll();
    }
    if (thread_.joinable()) thread_.join();
  }

  absl::Status StartThread() {
    if (!options_.has_thread) return absl::OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(
        thread_, internal_base::StartQuietThread("lockstep-local",
                                                 [this] { RunThread(); }));
    return absl::OkStatus();
  }

  void Start(int rank, StarListener& listener) {
    MutexLock lock(mutex_);
    listeners_[rank] = &listener;
  }

  void Send(int from, int to, std::string message) {
    MutexLock lock(mutex_);
    if (listeners_[from] == nullptr) return;  // the rank has left
    Push({Event::Kind::kMessage, to, from, std::move(message)});
  }
  // Delivers all events, unless another thread does so already.
  void Flush() {
    MutexLock lock(mutex_);
    DeliverAllUnlocking();
  }
  // Calls OnTick of `rank`, and then does the same as Flush. Calls OnTick of
  // all ranks if LocalStarOptions::tick has passed since that was last done.
  // If another thread delivers events, it makes these calls.
  void Hurry(int rank) {
    MutexLock lock(mutex_);
    ticks_[rank] = true;
    TickAllIfDue();
    DeliverAllUnlocking();
  }

  // Takes `rank` out of the job, and tells the others. Rank 0 first waits
  // until the others have left, for at most `patience`, and returns
  // DEADLINE_EXCEEDED if they have not. The listener is not called after this
  // has returned.
  absl::Status Leave(int rank, absl::Duration patience);

 private:
  struct Event {
    enum class Kind { kMessage, kBeat, kGone };
    Kind kind = Kind::kMessage;
    int to = 0;
    int from = 0;
    std::string message;
  };

  void Push(Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    events_.push_back(std::move(event));
    if (!delivers_) changed_.NotifyAll();
  }

  void RunThread();
  void BeatAllUnlocking() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void TickAllIfDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (SteadyNow() < next_tick_) return;
    ticks_.assign(ticks_.size(), true);
    next_tick_ = After(options_.tick);
  }

  // These release the mutex while a listener is called.
  void TickUnlocking() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DeliverAllUnlocking() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  template <typename Function>
  void CallUnlocking(int rank, const Function& function)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells the others that a rank has left.
  void TellGone(int rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const LocalStarOptions options_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> ticks_ ABSL_GUARDED_BY(mutex_);  // by rank: OnTick is due
  SteadyTime next_tick_ ABSL_GUARDED_BY(mutex_) = After(options_.tick);
  // The listeners that may be called, by rank, and the one that is called now.
  std::vector<StarListener*> listeners_ ABSL_GUARDED_BY(mutex_);
  int called_ ABSL_GUARDED_BY(mutex_) = -1;
  bool delivers_ ABSL_GUARDED_BY(mutex_) = false;  // a thread delivers events
  int leaving_ ABSL_GUARDED_BY(mutex_) = 0;  // waits for the end of a call
  int present_ ABSL_GUARDED_BY(mutex_);  // the number of ranks that are there

  std::thread thread_;
};

// ---- Delivering.

template <typename Function>
void LocalJob::CallUnlocking(int rank, const Function& function) {
  StarListener* const listener = listeners_[rank];
  if (listener == nullptr) return;
  called_ = rank;
  {
    const MutexUnlock unlock(mutex_);
    RunOrEnd("a rank's messages", [&] { function(*listener); });
  }
  called_ = -1;
  if (leaving_ > 0) changed_.NotifyAll();
}

void LocalJob::TickUnlocking() {
  // Other threads set ticks while a listener is called.
  auto due = ticks_.begin();
  while ((due = std::find(ticks_.begin(), ticks_.end(), true)) !=
         ticks_.end()) {
    *due = false;
    CallUnlocking(static_cast<int>(due - ticks_.begin()),
                  [](StarListener& listener) { listener.OnTick(); });
  }
}

void LocalJob::DeliverAllUnlocking() {
  if (delivers_) return;
  delivers_ = true;
  while (true) {
    TickUnlocking();
    if (events_.empty()) break;
    const Event event = std::move(events_.front());
    events_.pop_front();
    CallUnlocking(event.to, [&event](StarListener& listener) {
      switch (event.kind) {
        case Event::Kind::kMessage:
          return listener.OnMessage(event.from, event.message);
        case Event::Kind::kBeat:
          return listener.OnBeat(event.from, event.message);
        case Event::Kind::kGone:
          return listener.OnGone(event.from, absl::OkStatus());
      }
    });
  }
  delivers_ = false;
}

void LocalJob::RunThread() {
  SteadyTime beat = After(options_.beat);
  MutexLock lock(mutex_);
  while (present_ > 0) {
    if (events_.empty() || delivers_) changed_.WaitUntil(mutex_, next_tick_);
    TickAllIfDue();
    if (SteadyNow() >= beat && !delivers_) {
      BeatAllUnlocking();
      beat = After(options_.beat);
    }
    DeliverAllUnlocking();
  }
}

void LocalJob::BeatAllUnlocking() {
  delivers_ = true;
  const int size = static_cast<int>(listeners_.size());
  for (int rank = 0; rank < size; ++rank) {
    Event event = {Event::Kind::kBeat, 0, rank, {}};
    CallUnlocking(rank, [&event](StarListener& listener) {
      event.message = listener.Beat();
    });
    const int last = rank == 0 ? size - 1 : 0;
    for (event.to = rank == 0 ? 1 : 0; event.to <= last; ++event.to) {
      events_.push_back(event);
    }
  }
  delivers_ = false;
}

// ---- Leaving.

void LocalJob::TellGone(int rank) {
  const int last = rank == 0 ? static_cast<int>(listeners_.size()) - 1 : 0;
  for (int to = rank == 0 ? 1 : 0; to <= last; ++to) {
    Push({Event::Kind::kGone, to, rank, {}});
  }
}

absl::Status LocalJob::Leave(int rank, absl::Duration patience) {
  const SteadyTime until = After(patience);
  MutexLock lock(mutex_);
  while (rank == 0 && present_ > 1) {
    if (changed_.WaitUntil(mutex_, until)) break;
  }
  const bool alone = present_ == 1;
  const bool is_there = listeners_[rank] != nullptr;
  listeners_[rank] = nullptr;
  ++leaving_;
  while (called_ == rank) changed_.Wait(mutex_);
  --leaving_;
  --present_;
  changed_.NotifyAll();
  if (is_there) TellGone(rank);
  DeliverAllUnlocking();
  if (rank != 0 || alone) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(present_, " ranks have not left"));
}

// ---- The stars.

// One rank's star.
// Thread-safety: that of Star.
class LocalStar final : public Star {
 public:
  LocalStar(int rank, Peers peers, std::shared_ptr<LocalJob> job)
      : Star(rank, std::move(peers)), job_(std::move(job)) {}
  ~LocalStar() override { Leave(absl::ZeroDuration()).IgnoreError(); }

  std::string local_address() const override { return "127.0.0.1"; }
  void Start(StarListener& listener) override { job_->Start(rank(), listener); }
  void Send(int to, std::string message) override {
    job_->Send(rank(), to, std::move(message));
  }
  absl::Duration SilentFor(int /*rank*/) const override {
    return absl::ZeroDuration();
  }
  // All ranks have the clock of this process.
  std::optional<ClockAhead> AheadOf(int /*rank*/) const override {
    return ClockAhead();
  }
  absl::Status Leave(absl::Duration patience) override {
    if (std::exchange(left_, true)) return absl::OkStatus();
    return job_->Leave(rank(), patience);
  }
  void Flush() override { job_->Flush(); }
  void Hurry() override { job_->Hurry(rank()); }

 private:
  const std::shared_ptr<LocalJob> job_;
  bool left_ = false;
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Star>>> MakeLocalStars(
    int size, const LocalStarOptions& options) {
  const auto job = std::make_shared<LocalJob>(size, options);
  const Peers peers = MakePeers(size);
  std::vector<std::unique_ptr<Star>> stars;
  for (int rank = 0; rank < size; ++rank) {
    stars.push_back(std::make_unique<LocalStar>(rank, peers, job));
  }
  LOCKSTEP_RETURN_IF_ERROR(job->StartThread());
  return stars;
}

}  // namespace lockstep::internal_collective
