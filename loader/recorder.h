// Collects slow samples and events from many threads. Internal.
#ifndef LOCKSTEP_LOADER_RECORDER_H_
#define LOCKSTEP_LOADER_RECORDER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/loader/metrics.h"

namespace lockstep::internal_loader {

// Returns nanoseconds on the monotonic clock.
inline int64_t Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

// The samples that took longest.
// Thread-safety: thread-safe. The threshold is relaxed: a sample that is
// compared with an old one is compared again under the mutex.
class Slowest {
 public:
  // Adds `rows` samples from `index` on, which took that long together. This is
  // cheap unless they are among the slowest.
  void Add(int64_t index, int64_t nanoseconds, int64_t rows) {
    if (nanoseconds / rows <= threshold_.load(std::memory_order_relaxed))
      return;
    Insert(index, nanoseconds / rows, rows);
  }
  // Returns them, the slowest first.
  std::vector<SlowSample> Sorted() const;

 private:
  struct Entry {
    int64_t index = 0;
    int64_t nanoseconds = 0;
    int64_t rows = 0;
  };
  void Insert(int64_t index, int64_t nanoseconds, int64_t rows);

  static constexpr int kKept = 8;
  std::atomic<int64_t> threshold_{0};
  mutable Mutex mutex_;
  std::array<Entry, kKept> entries_ ABSL_GUARDED_BY(mutex_);
};

// The last things that were done for batches, and at which times.
// Thread-safety: thread-safe. Whether it is on is relaxed, since what is done
// while it is turned on may be missing.
class EventLog {
 public:
  explicit EventLog(int64_t capacity) { Keep(capacity); }

  // Keeps at least so many events from now on.
  void Keep(int64_t least);

  bool on() const { return on_.load(std::memory_order_relaxed); }

  // Adds an event. If the log is full, it replaces the oldest one.
  void Add(const LoaderEvent& event);

  // Says that the trainer asks for a step, and not for earlier ones any more.
  void GoTo(int64_t epoch, int64_t step);

  // Says that steps are read anew.
  void Restart();

  // Returns what was done for a step.
  LoaderEvents Of(int64_t epoch, int64_t step) const;

  // Returns the log in Chrome's trace format, for chrome://tracing or
  // ui.perfetto.dev.
  std::string ToJson() const;

 private:
  // The epoch and the step.
  using Place = std::pair<int64_t, int64_t>;
  // A Step is what is known of a step that the trainer may still ask for.
  struct Step {
    uint64_t first = 0;  // the number of its first event, from 0 on
    int64_t lost = 0;    // events that were replaced
  };

  // Returns the events from this number on that are kept, the oldest first.
  std::vector<LoaderEvent> From(uint64_t first) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<bool> on_{false};
  mutable Mutex mutex_;
  uint64_t capacity_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0;  // events
  Place present_ ABSL_GUARDED_BY(mutex_) = {0, 0};
  std::map<Place, Step> steps_ ABSL_GUARDED_BY(mutex_);  // from the present one
  // Grows up to the capacity, and is a ring from then on, in which event number
  // n has the place n modulo the capacity.
  std::vector<LoaderEvent> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_RECORDER_H_
