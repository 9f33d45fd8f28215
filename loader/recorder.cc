#include "lockstep/loader/recorder.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

namespace lockstep::internal_loader {

void Slowest::Insert(int64_t index, int64_t nanoseconds, int64_t rows) {
  MutexLock lock(mutex_);
  const auto by_time = [](const Entry& a, const Entry& b) {
    return a.nanoseconds < b.nanoseconds;
  };
  // Each sample is listed once, with its longest time.
  auto place = std::find_if(
      entries_.begin(), entries_.end(),
      [&](const Entry& e) { return e.rows > 0 && e.index == index; });
  if (place == entries_.end()) {
    place = std::min_element(entries_.begin(), entries_.end(), by_time);
  }
  if (nanoseconds > place->nanoseconds) *place = {index, nanoseconds, rows};
  threshold_.store(
      std::min_element(entries_.begin(), entries_.end(), by_time)->nanoseconds,
      std::memory_order_relaxed);
}

std::vector<SlowSample> Slowest::Sorted() const {
  MutexLock lock(mutex_);
  std::vector<SlowSample> sorted;
  for (const Entry& entry : entries_) {
    if (entry.rows == 0) continue;
    sorted.push_back({entry.index, entry.nanoseconds * 1e-9, entry.rows});
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return sorted;
}

void TraceLog::Add(Kind kind, int worker, int64_t begin, int64_t end,
                   int64_t epoch, int64_t step) {
  if (next_.load(std::memory_order_relaxed) >=
      static_cast<int64_t>(events_.size())) {
    return;
  }
  const int64_t place = next_.fetch_add(1, std::memory_order_relaxed);
  if (place >= static_cast<int64_t>(events_.size())) return;
  Event& event = events_[place];
  event.kind = kind;
  event.worker = worker;
  event.begin = begin;
  event.end = end;
  event.epoch = epoch;
  event.step = step;
  event.complete.store(true, std::memory_order_release);
}

std::string TraceLog::ToJson() const {
  static constexpr const char* kNames[] = {"read", "complete", "wait"};
  std::string json = "{\"traceEvents\":[";
  bool first = true;
  for (const Event& event : events_) {
    if (!event.complete.load(std::memory_order_acquire)) continue;
    // Thread 0 is the thread of the trainer.
    absl::StrAppendFormat(
        &json,
        "%s\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%.3f,"
        "\"dur\":%.3f,\"args\":{\"epoch\":%d,\"step\":%d}}",
        first ? "" : ",", kNames[static_cast<int>(event.kind)],
        event.worker + 1, event.begin * 1e-3, (event.end - event.begin) * 1e-3,
        event.epoch, event.step);
    first = false;
  }
  return json + "\n]}\n";
}

}  // namespace lockstep::internal_loader
