#include "lockstep/loader/recorder.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
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

void EventLog::Keep(int64_t least) {
  MutexLock lock(mutex_);
  if (least <= static_cast<int64_t>(capacity_)) return;
  std::rotate(events_.begin(),
              events_.begin() + static_cast<std::ptrdiff_t>(oldest_),
              events_.end());
  oldest_ = 0;
  capacity_ = static_cast<size_t>(least);
  on_.store(true, std::memory_order_relaxed);
}

void EventLog::Add(const LoaderEvent& event) {
  MutexLock lock(mutex_);
  if (events_.size() < capacity_) {
    events_.push_back(event);
    return;
  }
  LoaderEvent& oldest = events_[oldest_];
  if (std::pair(oldest.epoch, oldest.step) >= present_) ++lost_;
  oldest = event;
  oldest_ = (oldest_ + 1) % capacity_;
}

void EventLog::GoTo(int64_t epoch, int64_t step) {
  MutexLock lock(mutex_);
  present_ = {epoch, step};
}

int64_t EventLog::lost() const {
  MutexLock lock(mutex_);
  return lost_;
}

std::vector<LoaderEvent> EventLog::Of(int64_t epoch, int64_t step) const {
  std::vector<LoaderEvent> found;
  MutexLock lock(mutex_);
  for (size_t i = 0; i < events_.size(); ++i) {
    const LoaderEvent& event = events_[(oldest_ + i) % events_.size()];
    if (event.epoch == epoch && event.step == step) found.push_back(event);
  }
  return found;
}

std::string EventLog::ToJson() const {
  static constexpr const char* kNames[] = {"read", "complete", "wait"};
  std::string json = "{\"traceEvents\":[";
  bool first = true;
  MutexLock lock(mutex_);
  for (size_t i = 0; i < events_.size(); ++i) {
    const LoaderEvent& event = events_[(oldest_ + i) % events_.size()];
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
