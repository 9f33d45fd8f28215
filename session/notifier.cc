#include "lockstep/session/notifier.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT: a library's own thread
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/rendezvous/quiet_thread.h"
#include "lockstep/session/console.h"

namespace lockstep::internal_session {
// The thread shares it, since an output that blocks may outlive the notifier.
// Thread-safety: thread-safe.
struct Notifier::State {
  enum class Thread { kNone, kRuns, kCannotStart };

  // Returns true if there is nothing to write, and nothing is being written.
  bool idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return lines.empty() && !bar_text.has_value() && !is_writing;
  }

  // Writes the next text, after waiting for it. Returns CANCELLED at the end.
  absl::Status WriteNext();

  Output line, bar;  // used by the thread, or under `direct`
  Mutex direct;      // held by a caller that writes by itself

  Mutex mutex;
  CondVar changed;
  Thread thread ABSL_GUARDED_BY(mutex) = Thread::kNone;
  std::deque<std::string> lines ABSL_GUARDED_BY(mutex);
  std::optional<std::string> bar_text ABSL_GUARDED_BY(mutex);
  int64_t dropped ABSL_GUARDED_BY(mutex) = 0;
  bool is_writing ABSL_GUARDED_BY(mutex) = false;
  int64_t written ABSL_GUARDED_BY(mutex) = 0;      // calls that have returned
  int64_t blocked_at ABSL_GUARDED_BY(mutex) = -1;  // `written`, as Flush saw it
  bool is_over ABSL_GUARDED_BY(mutex) = false;
};

absl::Status Notifier::State::WriteNext() {
  std::string text;
  bool is_bar = false;
  {
    MutexLock lock(mutex);
    if (std::exchange(is_writing, false)) ++written;
    if (idle()) changed.NotifyAll();
    while (idle() && !is_over) changed.Wait(mutex);
    if (is_over) return absl::CancelledError();
    is_writing = true;
    if (dropped > 0) {
      text = absl::StrCat(std::exchange(dropped, 0),
                          " lines of the log were dropped here, because it was "
                          "blocked");
    } else if (!lines.empty()) {
      text = std::move(lines.front());
      lines.pop_front();
    } else {
      text = *std::exchange(bar_text, std::nullopt);
      is_bar = true;
    }
  }
  (is_bar ? bar : line)(text);
  return absl::OkStatus();
}

std::shared_ptr<Notifier> Notifier::StandardError() {
  static std::atomic<const std::shared_ptr<Notifier>*> current{nullptr};
  const std::shared_ptr<Notifier>* now = current.load();
  // A forked child has no thread, and perhaps a console whose lock is held.
  if (now != nullptr && !(*now)->fork_guard_.forked()) return *now;
  const std::shared_ptr<Console> console = Console::StandardError();
  Output bar;
  if (console->has_bar()) {
    bar = [console](absl::string_view text) { console->ShowBar(text); };
  }
  auto made = std::make_unique<const std::shared_ptr<Notifier>>(
      std::make_shared<Notifier>(
          [console](absl::string_view text) { console->WriteLine(text); },
          std::move(bar)));
  if (!current.compare_exchange_strong(now, made.get())) return *now;
  return *made.release();
}

Notifier::Notifier(Output line, Output bar)
    : state_(std::make_shared<State>()) {
  state_->line = std::move(line);
  state_->bar = std::move(bar);
}

Notifier::~Notifier() {
  if (fork_guard_.forked()) {
    KeepForEver(std::make_shared<std::thread>(std::move(thread_)));
    KeepForEver(std::move(state_));
    return;
  }
  Flush(kLastPatience);
  bool blocks = false;
  {
    MutexLock lock(state_->mutex);
    blocks = state_->is_writing;
    state_->is_over = true;
    state_->changed.NotifyAll();
  }
  if (!thread_.joinable()) return;
  if (blocks) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

bool Notifier::has_bar() const { return state_->bar != nullptr; }

bool Notifier::HasThread() {
  MutexLock lock(state_->mutex);
  if (state_->thread == State::Thread::kNone) {
    absl::StatusOr<std::thread> started =
        internal_collective::StartQuietThread("lockstep-log", [state = state_] {
          absl::Status ended;
          while (!absl::IsCancelled(ended)) {
            ended = CatchAll("the log", [&] { return state->WriteNext(); });
          }
        });
    state_->thread =
        started.ok() ? State::Thread::kRuns : State::Thread::kCannotStart;
    if (started.ok()) thread_ = *std::move(started);
  }
  return state_->thread == State::Thread::kRuns;
}

void Notifier::WriteLine(absl::string_view text) {
  CatchAll("the log", [&] {
    if (fork_guard_.forked()) {
      state_->line(text);
    } else if (!HasThread()) {
      MutexLock lock(state_->direct);
      state_->line(text);
    } else {
      MutexLock lock(state_->mutex);
      if (state_->lines.size() >= kMostLines) {
        state_->lines.pop_front();
        ++state_->dropped;
      }
      state_->lines.emplace_back(text);
      state_->changed.NotifyAll();
    }
    return absl::OkStatus();
  }).IgnoreError();
}

void Notifier::ShowBar(absl::string_view text) {
  if (!has_bar() || fork_guard_.forked()) return;
  CatchAll("the bar", [&] {
    if (!HasThread()) {
      MutexLock lock(state_->direct);
      state_->bar(text);
    } else {
      MutexLock lock(state_->mutex);
      state_->bar_text = std::string(text);
      state_->changed.NotifyAll();
    }
    return absl::OkStatus();
  }).IgnoreError();
}

bool Notifier::Flush(absl::Duration patience) {
  if (fork_guard_.forked()) return true;
  const SteadyTime deadline = After(patience);
  MutexLock lock(state_->mutex);
  const int64_t written = state_->written;
  if (state_->is_writing && state_->blocked_at == written) return false;
  while (!state_->idle()) {
    if (!state_->changed.WaitUntil(state_->mutex, deadline)) continue;
    const bool is_blocked = state_->is_writing && state_->written == written;
    if (is_blocked && patience >= kLastPatience) state_->blocked_at = written;
    break;
  }
  return state_->idle();
}

}  // namespace lockstep::internal_session
