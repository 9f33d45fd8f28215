#include "lockstep/session/records.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/metrics.h"
#include "lockstep/metrics/records.h"
#include "lockstep/session/step_report.h"

namespace lockstep::internal_session {
namespace {

int64_t Nanoseconds(double seconds) {
  return static_cast<int64_t>(std::llround(seconds * 1e9));
}

absl::string_view NameOf(const OperationRecord& record) {
  return {record.name, strnlen(record.name, sizeof(record.name))};
}

// Returns the number of a bucket of gradients, or -1 if the operation has
// another name. Gradients call them "bucket 3 of step 7".
int64_t BucketOf(absl::string_view name) {
  int64_t number = -1;
  if (!absl::ConsumePrefix(&name, "bucket ")) return -1;
  return absl::SimpleAtoi(name.substr(0, name.find(' ')), &number) ? number
                                                                   : -1;
}

int64_t CountOf(const OperationRecord& record) {
  return std::max(record.in_count, record.out_count);
}

}  // namespace

Records::Records(const World* world, const std::optional<ClockOffset>& measured,
                 bool keeps_all)
    : world_(world), measured_(measured), keeps_all_(keeps_all) {
  kept_.reserve(kMostOperations + 1);
}

const StepEvents* Records::AddStep(const StepReport& step,
                                   absl::Span<const OfGroup> groups,
                                   const Loader& loader) {
  next_ = 0;
  for (const OfGroup& group : groups) AddTimes(step, group);
  std::optional<StepEvents::Why> why =
      choice_.Choose(step.steps, step.between_seconds() + step.seconds());
  events_ = {};
  if (why.has_value()) {
    events_.dropped_steps = choice_.TakeDropped();
  } else if (keeps_all_) {
    why = StepEvents::Why::kAll;
  } else {
    return nullptr;
  }
  events_.why = *why;
  events_.step = step.steps;
  events_.epoch = step.epoch;
  events_.number = step.number;
  events_.loader = step.loader;
  events_.before = SteadyNanoseconds(step.before);
  events_.asked = SteadyNanoseconds(step.asked);
  events_.ended = SteadyNanoseconds(step.ended);
  events_.ready_batches = loader.ReadyBatches();
  AddClock(events_);
  list_.clear();
  StepEvent event;
  for (const auto& [begin, end] : step.waits) {
    event.begin = SteadyNanoseconds(begin);
    event.end = SteadyNanoseconds(end);
    Add(event);
  }
  event.kind = StepEvent::Kind::kAverage;
  for (const auto& [begin, end] : step.averages) {
    event.begin = SteadyNanoseconds(begin);
    event.end = SteadyNanoseconds(end);
    Add(event);
  }
  for (const OfGroup& group : groups) AddOperations(group);
  AddLoaderEvents(step, loader);
  events_.events = list_;
  return &events_;
}

void Records::Add(const StepEvent& event) {
  if (list_.size() < kMostEvents) {
    list_.push_back(event);
  } else {
    ++events_.dropped;
  }
}

void Records::AddOperations(const OfGroup& group) {
  StepEvent event;
  event.kind = StepEvent::Kind::kOperation;
  event.group = group.group->name();
  for (const OperationRecord& record : group.operations) {
    event.begin = SteadyNanoseconds(record.steady_issued());
    event.end =
        record.pending() ? -1 : SteadyNanoseconds(record.steady_ended());
    event.operation = Name(record.kind);
    event.name = NameOf(record);
    event.bytes = CountOf(record) * SizeOf(record.dtype);
    event.failed = record.code != absl::StatusCode::kOk;
    Add(event);
  }
  // The group's log keeps only so many of them.
  events_.dropped += group.missing;
}

void Records::AddLoaderEvents(const StepReport& step, const Loader& loader) {
  const LoaderEvents of_loader = loader.EventsOf(step.epoch, step.number);
  for (const LoaderEvent& each : of_loader.events) {
    // The session knows its own waits.
    if (each.kind == LoaderEvent::Kind::kWait) continue;
    StepEvent event;
    event.kind = each.kind == LoaderEvent::Kind::kRead
                     ? StepEvent::Kind::kRead
                     : StepEvent::Kind::kComplete;
    event.begin = each.begin;
    event.end = each.end;
    event.worker = each.worker;
    event.index = each.index;
    event.rows = each.rows;
    Add(event);
  }
  events_.dropped += of_loader.lost;
}

// ---- Clocks.

void Records::AddClock(StepEvents& events) const {
  if (!measured_.has_value()) {
    events.ahead_error = 0;
    return;
  }
  events.ahead = Nanoseconds(measured_->seconds);
  events.ahead_error =
      Nanoseconds(measured_->error) +
      SteadyDrift(SteadyNanoseconds() - SteadyNanoseconds(measured_at_));
  if (world_ == nullptr) return;
  const std::optional<SteadyOffset> heard = world_->steady_offset();
  if (!heard.has_value()) return;
  const int64_t error = absl::ToInt64Nanoseconds(heard->error);
  const int64_t ahead = absl::ToInt64Nanoseconds(heard->ahead);
  // If they contradict each other, a clock has stood still since the beginning.
  const bool is_contradicted =
      std::abs(ahead - events.ahead) > events.ahead_error + error;
  if (events.ahead_error <= error && !is_contradicted) return;
  events.ahead = ahead;
  events.ahead_error = error;
}

std::string NameOfSteadyClock() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  if (!std::getline(file, boot) || boot.empty()) return "";
  // The clock of a container may have an offset.
  struct stat clock = {};
  if (stat("/proc/self/ns/time", &clock) != 0) return boot;
  return absl::StrCat(boot, "/", clock.st_ino);
}

// ---- Times of operations.

void Records::AddTimes(const StepReport& step, const OfGroup& group) {
  const int64_t asked = SteadyNanoseconds(step.asked);
  for (const OperationRecord& record : group.operations) {
    if (record.pending() || record.code != absl::StatusCode::kOk) continue;
    OperationTimes& times = FindKept(group.group, record).times;
    const int64_t issued = SteadyNanoseconds(record.steady_issued());
    const int64_t ended = SteadyNanoseconds(record.steady_ended());
    times.issued.Add(issued - asked);
    times.ended.Add(ended - asked);
    times.took.Add(ended - issued);
  }
}

Records::Kept& Records::FindKept(const Communicator* group,
                                 const OperationRecord& record) {
  const int64_t count = CountOf(record);
  const int64_t bucket = BucketOf(NameOf(record));
  for (size_t i = 0; i < kept_.size(); ++i) {
    const size_t at = (next_ + i) % kept_.size();
    Kept& kept = kept_[at];
    if (kept.group != group || kept.kind != record.kind ||
        kept.dtype != record.dtype || kept.count != count ||
        kept.bucket != bucket) {
      continue;
    }
    next_ = at + 1;
    return kept;
  }
  if (kept_.size() > kMostOperations) return kept_.back();
  Kept made = {group, record.kind, record.dtype, count, bucket, {}};
  if (kept_.size() == kMostOperations) {
    made.group = nullptr;
    made.times.operation = "others";
  } else {
    made.times.group = group->name();
    made.times.operation = std::string(Name(record.kind));
    made.times.dtype = std::string(Name(record.dtype));
    made.times.count = count;
    made.times.bucket = bucket;
  }
  kept_.push_back(std::move(made));
  return kept_.back();
}

std::vector<const OperationTimes*> Records::TakeTimes() {
  std::vector<const OperationTimes*> changed;
  for (Kept& kept : kept_) {
    if (kept.taken == kept.times.took.count()) continue;
    kept.taken = kept.times.took.count();
    changed.push_back(&kept.times);
  }
  return changed;
}

void Records::LookAt(const std::string& name, const Loader& loader) {
  std::vector<SlowRecord> slowest;
  for (const SlowSample& sample : loader.Metrics().slowest) {
    slowest.push_back({sample.index, sample.seconds, sample.timed_together});
  }
  std::vector<SlowRecord>& known = slowest_[name];
  const bool is_same =
      std::equal(slowest.begin(), slowest.end(), known.begin(), known.end(),
                 [](const SlowRecord& a, const SlowRecord& b) {
                   return a.index == b.index && a.seconds == b.seconds;
                 });
  if (is_same) return;
  known = std::move(slowest);
  new_slowest_.insert(name);
}

std::vector<std::pair<std::string, std::vector<SlowRecord>>>
Records::TakeSlowest() {
  std::vector<std::pair<std::string, std::vector<SlowRecord>>> taken;
  for (const std::string& name : std::exchange(new_slowest_, {})) {
    taken.emplace_back(name, slowest_[name]);
  }
  return taken;
}

}  // namespace lockstep::internal_session
