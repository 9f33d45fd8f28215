// Collects slow samples and a trace from many threads. Internal.
#ifndef LOCKSTEP_LOADER_RECORDER_H_
#define LOCKSTEP_LOADER_RECORDER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

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

// A bounded log of what was done at which time.
// Thread-safety: thread-safe.
// Memory ordering: Add stores Event::complete with release and ToJson loads it
// with acquire, so that ToJson reads only events that were written in full.
class TraceLog {
 public:
  enum class Kind : uint8_t { kRead, kComplete, kWait };

  explicit TraceLog(int64_t capacity)
      : events_(static_cast<size_t>(capacity)) {}

  bool on() const { return !events_.empty(); }

  // Drops the event if the log is full. `worker` is -1 for the caller of Next.
  void Add(Kind kind, int worker, int64_t begin, int64_t end, int64_t epoch,
           int64_t step);

  // Returns the log in Chrome's trace format, for chrome://tracing or
  // ui.perfetto.dev.
  std::string ToJson() const;

 private:
  struct Event {
    std::atomic<bool> complete{false};
    Kind kind;
    int worker;
    int64_t begin, end, epoch, step;
  };
  std::atomic<int64_t> next_{0};
  std::vector<Event> events_;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_RECORDER_H_
