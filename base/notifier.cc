#include "lockstep/base/notifier.h"

#include <algorithm>
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
#include "lockstep/base/quiet_thread.h"
#include "lockstep/base/steady_time.h"

namespace lockstep::internal_base {
// The thread shares it, since an output that blocks may outlive the notifier.
// Thread-safety: thread-safe.
struct Notifier::State {
  enum class Thread { kNone, kRuns, kCannotStart };

  struct Line {
    std::string text;
    const void* owner;
  };

  // Returns true if there is nothing to write, and nothing is being written.
  bool idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return lines.empty() && !bar_text.has_value() && !is_writing;
  }

  // Returns true if lines of `owner` wait, or one of them is being written.
  bool Has(const void* owner) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return (is_writing && writing_for == owner) ||
           std::any_of(lines.begin(), lines.end(), [owner](const Line& line) {
             return line.owner == owner;
           });
  }

  // Returns true if an output still blocks in a call for which somebody has
  // waited for kLastPatience.
  bool IsKnownToBlock() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return is_writing && blocked_at == written;
  }

  // Writes the next text, after waiting for it. Returns CANCELLED at the end.
  absl::Status WriteNext();

  Output line, bar;  // used by the thread, or under `direct`
  Mutex direct;      // held by a caller that writes by itself

  Mutex mutex;
  CondVar changed;
  Thread thread ABSL_GUARDED_BY(mutex) = Thread::kNone;
  std::deque<Line> lines ABSL_GUARDED_BY(mutex);
  std::optional<std::string> bar_text ABSL_GUARDED_BY(mutex);
  int64_t dropped ABSL_GUARDED_BY(mutex) = 0;
  bool is_writing ABSL_GUARDED_BY(mutex) = false;
  const void* writing_for ABSL_GUARDED_BY(mutex) = nullptr;  // an owner
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
    changed.NotifyAll();
    while (idle() && !is_over) changed.Wait(mutex);
    if (is_over) return absl::CancelledError();
    is_writing = true;
    writing_for = nullptr;
    if (dropped > 0) {
      text = absl::StrCat(std::exchange(dropped, 0),
                          " lines of the log were dropped here, because it was "
                          "blocked");
    } else if (!lines.empty()) {
      text = std::move(lines.front().text);
      writing_for = lines.front().owner;
      lines.pop_front();
    } else {
      text = *std::exchange(bar_text, std::nullopt);
      is_bar = true;
    }
  }
  (is_bar ? bar : line)(text);
  return absl::OkStatus();
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
  Close();
}

void Notifier::Close() {
  if (fork_guard_.forked()) return;
  Flush(kLastPatience);
  bool blocks = false;
  std::thread thread;
  {
    MutexLock lock(state_->mutex);
    blocks = state_->is_writing;
    state_->is_over = true;
    state_->lines.clear();
    state_->changed.NotifyAll();
    thread = std::move(thread_);
  }
  if (!thread.joinable()) return;
  if (blocks) {
    thread.detach();
  } else {
    thread.join();
  }
}

bool Notifier::has_bar() const { return state_->bar != nullptr; }

bool Notifier::HasThread() {
  MutexLock lock(state_->mutex);
  if (state_->thread == State::Thread::kNone) {
    absl::StatusOr<std::thread> started =
        StartQuietThread("lockstep-log", [state = state_] {
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

void Notifier::WriteLine(absl::string_view text, const void* owner) {
  CatchAll("the log", [&] {
    if (fork_guard_.forked()) {
      state_->line(text);
    } else if (!HasThread()) {
      MutexLock lock(state_->direct);
      state_->line(text);
    } else {
      MutexLock lock(state_->mutex);
      if (state_->is_over) return absl::OkStatus();
      if (state_->lines.size() >= kMostLines) {
        state_->lines.pop_front();
        ++state_->dropped;
      }
      state_->lines.push_back({std::string(text), owner});
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
  if (state_->IsKnownToBlock()) return false;
  while (!state_->idle()) {
    if (!state_->changed.WaitUntil(state_->mutex, deadline)) continue;
    const bool is_blocked = state_->is_writing && state_->written == written;
    if (is_blocked && patience >= kLastPatience) state_->blocked_at = written;
    break;
  }
  return state_->idle();
}

void Notifier::Drop(const void* owner) {
  if (fork_guard_.forked()) return;
  const SteadyTime deadline = After(kLastPatience);
  MutexLock lock(state_->mutex);
  const int64_t written = state_->written;
  while (state_->Has(owner) && !state_->IsKnownToBlock()) {
    if (!state_->changed.WaitUntil(state_->mutex, deadline)) continue;
    if (state_->is_writing && state_->written == written) {
      state_->blocked_at = written;
    }
    break;
  }
  std::deque<State::Line>& lines = state_->lines;
  const auto kept = std::remove_if(
      lines.begin(), lines.end(),
      [owner](const State::Line& line) { return line.owner == owner; });
  state_->dropped += lines.end() - kept;
  lines.erase(kept, lines.end());
}

}  // namespace lockstep::internal_base
