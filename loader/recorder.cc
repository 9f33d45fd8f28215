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
  // The events get new numbers, since those before them have no place.
  events_ = From(0);
  const uint64_t gone = added_ - events_.size();
  for (auto& [place, step] : steps_) {
    step.first = std::max(step.first, gone) - gone;
  }
  added_ -= gone;
  capacity_ = static_cast<uint64_t>(least);
  on_.store(true, std::memory_order_relaxed);
}

void EventLog::Add(const LoaderEvent& event) {
  MutexLock lock(mutex_);
  const Place place = {event.epoch, event.step};
  if (place >= present_) steps_.try_emplace(place, Step{added_});
  const uint64_t number = added_++;
  if (events_.size() < capacity_) {
    events_.push_back(event);
    return;
  }
  LoaderEvent& oldest = events_[number % capacity_];
  const auto step = steps_.find({oldest.epoch, oldest.step});
  if (step != steps_.end()) ++step->second.lost;
  oldest = event;
}

void EventLog::GoTo(int64_t epoch, int64_t step) {
  MutexLock lock(mutex_);
  present_ = {epoch, step};
  steps_.erase(steps_.begin(), steps_.lower_bound(present_));
}

void EventLog::Restart() {
  MutexLock lock(mutex_);
  steps_.clear();
}

std::vector<LoaderEvent> EventLog::From(uint64_t first) const {
  std::vector<LoaderEvent> found;
  first = std::max(first, added_ - events_.size());
  found.reserve(added_ - first);
  for (uint64_t i = first; i < added_; ++i) {
    found.push_back(events_[i % capacity_]);
  }
  return found;
}

LoaderEvents EventLog::Of(int64_t epoch, int64_t step) const {
  LoaderEvents of;
  {
    MutexLock lock(mutex_);
    // Without this, all events that are kept would be looked at.
    const auto known = steps_.find({epoch, step});
    const bool is_known = known != steps_.end();
    of.events = From(is_known ? known->second.first : 0);
    if (is_known) of.lost = known->second.lost;
  }
  const auto is_other = [&](const LoaderEvent& event) {
    return event.epoch != epoch || event.step != step;
  };
  of.events.erase(std::remove_if(of.events.begin(), of.events.end(), is_other),
                  of.events.end());
  return of;
}

std::string EventLog::ToJson() const {
  static constexpr const char* kNames[] = {"read", "complete", "wait"};
  std::string json = "{\"traceEvents\":[";
  bool first = true;
  const auto events = [&] {
    MutexLock lock(mutex_);
    return From(0);
  }();
  for (const LoaderEvent& event : events) {
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
