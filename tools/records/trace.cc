#include "lockstep/tools/records/trace.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/json.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/metrics/records.h"
#include "lockstep/tools/records/job_records.h"
#include "lockstep/tools/records/rank_records.h"
#include "lockstep/tools/records/record_line.h"
#include "lockstep/tools/records/time_line.h"

namespace lockstep {

std::string NameOfTrack(const TraceSlice& slice) {
  const auto& [kind, of, number] = slice.track;
  switch (kind) {
    case TraceSlice::Kind::kSteps:
      return "steps";
    case TraceSlice::Kind::kGroup:
      return absl::StrCat(
          "group ", of, number > 0 ? absl::StrCat(", lane ", number + 1) : "");
    case TraceSlice::Kind::kWorker:
      return absl::StrCat("loader ", of, ", worker ", number);
  }
  return "";
}

std::string Microseconds(int64_t nanoseconds) {
  const int64_t size = std::abs(nanoseconds);
  return absl::StrCat(nanoseconds < 0 ? "-" : "", size / 1000, ".",
                      absl::Dec(size % 1000, absl::kZeroPad3));
}

namespace {

using ::lockstep::internal_base::AppendJson;

// Returns what a slice of an event is called.
std::string NameOf(const RecordedEvent& event) {
  switch (event.kind) {
    case StepEvent::Kind::kWait:
      return "wait for data";
    case StepEvent::Kind::kAverage:
      return "average";
    case StepEvent::Kind::kRead:
      return "read";
    case StepEvent::Kind::kComplete:
      return "complete";
    case StepEvent::Kind::kOperation:
      break;
  }
  if (!absl::StartsWith(event.name, "bucket ")) return event.operation;
  const size_t end = event.name.find(' ', 7);
  return absl::StrCat(event.operation, " ", event.name.substr(0, end));
}

bool IsOfWorker(const RecordedEvent& event) {
  return event.kind == StepEvent::Kind::kRead ||
         event.kind == StepEvent::Kind::kComplete;
}

// Gives operations of a group that run at the same time different tracks.
// Thread-safety: thread-compatible.
class Lanes {
 public:
  // Returns the number of the track, from 0 on. Operations come in the order of
  // their begins.
  int64_t Of(const std::string& group, int64_t begin, int64_t end) {
    std::vector<int64_t>& ends = ends_[group];
    size_t lane = 0;
    while (lane < ends.size() && ends[lane] > begin) ++lane;
    if (lane == ends.size()) ends.push_back(end);
    ends[lane] = end;
    return static_cast<int64_t>(lane);
  }

 private:
  std::map<std::string, std::vector<int64_t>> ends_;
};

}  // namespace

// ---- Reading.

absl::StatusOr<Trace> Trace::Read(
    absl::string_view path, const TraceOptions& options,
    const std::function<void(absl::string_view)>& tell) {
  JobRecordsOptions of_job;
  of_job.run = options.run;
  of_job.ranks = options.ranks;
  of_job.wanted.events_of = [&](int64_t step) {
    return options.WantsStep(step);
  };
  Trace trace;
  LOCKSTEP_ASSIGN_OR_RETURN(trace.job_, ReadJobRecords(path, of_job, tell));
  LOCKSTEP_RETURN_IF_ERROR(trace.ChooseSteps(options, tell));
  trace.time_line_.emplace(trace.job_.ranks);
  return trace;
}

absl::Status Trace::ChooseSteps(
    const TraceOptions& options,
    const std::function<void(absl::string_view)>& tell) {
  std::set<int64_t> all;
  std::set<int64_t> without;
  for (const auto& [rank, run] : job_.ranks) {
    if (!options.ranks.empty() && options.ranks.count(rank) == 0) continue;
    std::vector<const EventsLine*>& chosen = steps_[rank];
    for (const EventsLine& events : run->events) {
      all.insert(events.step);
      if (options.WantsStep(events.step)) chosen.push_back(&events);
    }
    if (chosen.empty()) without.insert(without.end(), rank);
  }
  if (without.size() < steps_.size()) {
    if (!without.empty()) {
      tell(
          absl::StrCat("these ranks have no events of the steps "
                       "that are shown: ",
                       SayNumbers(without)));
    }
    return absl::OkStatus();
  }
  if (all.empty()) {
    return absl::FailedPreconditionError(
        "no step of this run has events, since no step has ended");
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "none of these steps has events; these have: ", SayNumbers(all)));
}

// ---- Clocks.

absl::Status Trace::CheckClocks(absl::Duration most) const {
  if (most == absl::InfiniteDuration()) return absl::OkStatus();
  for (const auto& [rank, steps] : steps_) {
    for (const EventsLine* const events : steps) {
      const PlacedTime ended = time_line_->Place(rank, events->ended);
      if (!ended.error.has_value()) {
        return absl::FailedPreconditionError(
            absl::StrCat("it is not known how far the clock of rank ", rank,
                         " was ahead of rank 0's; --ranks leaves it out, and "
                         "--max_error=inf "
                         "shows its times as they are"));
      }
      if (absl::Nanoseconds(*ended.error) <= most) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "the times of rank ", rank, " in step ", events->step,
          " may be wrong by ",
          absl::FormatDuration(absl::Nanoseconds(*ended.error)),
          ", and no more than ", absl::FormatDuration(most),
          " is accepted, since what came first could not be told; "
          "--ranks leaves it out, and a larger --max_error shows it"));
    }
  }
  return absl::OkStatus();
}

// ---- Slices.

void Trace::ForEachSlice(
    int64_t rank, const std::function<void(const TraceSlice&)>& show) const {
  const auto place = [&](int64_t time) {
    return time_line_->Place(rank, time).nanoseconds;
  };
  Lanes lanes;
  for (const EventsLine* const step : steps_.at(rank)) {
    TraceSlice slice;
    slice.step = step;
    slice.is_step = true;
    slice.name = absl::StrCat("step ", step->step);
    slice.begin = place(step->before);
    slice.end = place(step->ended);
    show(slice);
    slice.is_step = false;
    if (step->asked > step->before) {
      slice.name = "between steps";
      slice.end = place(step->asked);
      show(slice);
    }
    const auto show_event = [&](const RecordedEvent& event, bool is_operation) {
      slice.event = &event;
      slice.name = NameOf(event);
      slice.begin = place(event.begin);
      slice.end = std::max(place(event.end.value_or(step->ended)), slice.begin);
      if (is_operation) {
        slice.track = {TraceSlice::Kind::kGroup, event.group,
                       lanes.Of(event.group, slice.begin, slice.end)};
      }
      show(slice);
    };
    std::vector<const RecordedEvent*> operations;
    for (const RecordedEvent& event : step->events) {
      if (event.kind == StepEvent::Kind::kOperation) {
        operations.push_back(&event);
      } else if (!IsOfWorker(event)) {
        show_event(event, /*is_operation=*/false);
      }
    }
    std::stable_sort(
        operations.begin(), operations.end(),
        [](const auto* a, const auto* b) { return a->begin < b->begin; });
    for (const RecordedEvent* const event : operations) {
      show_event(*event, /*is_operation=*/true);
    }
    for (const RecordedEvent& event : step->events) {
      if (!IsOfWorker(event)) continue;
      slice.track = {TraceSlice::Kind::kWorker, step->loader, event.worker};
      show_event(event, /*is_operation=*/false);
    }
  }
}

// ---- Printing.

namespace {

// Appends the arguments of a slice, which Perfetto shows beside it.
void AppendArguments(const TraceSlice& slice, std::string& json) {
  absl::StrAppend(&json, ",\"args\":{\"step\":", slice.step->step);
  if (slice.event == nullptr) {
    absl::StrAppend(&json, ",\"epoch\":", slice.step->epoch,
                    ",\"number\":", slice.step->number, ",\"loader\":");
    AppendJson(slice.step->loader, json);
    absl::StrAppend(&json, ",\"kept as\":\"", Name(slice.step->why),
                    "\",\"dropped\":", slice.step->dropped);
  } else if (slice.event->kind == StepEvent::Kind::kOperation) {
    absl::StrAppend(&json, ",\"bytes\":", slice.event->bytes, ",\"name\":");
    AppendJson(slice.event->name, json);
    if (slice.event->failed) json += ",\"failed\":true";
    if (!slice.event->end.has_value()) json += ",\"pending\":true";
  } else if (slice.event->kind == StepEvent::Kind::kRead) {
    absl::StrAppend(&json, ",\"first index\":", slice.event->index,
                    ",\"rows\":", slice.event->rows);
  }
  json += '}';
}

// Appends a line that names a rank or one of its tracks.
void AppendName(absl::string_view kind, int64_t rank, size_t track,
                absl::string_view name, std::string& json) {
  absl::StrAppend(&json, "{\"name\":\"", kind,
                  "_name\",\"ph\":\"M\",\"pid\":", rank, ",\"tid\":", track,
                  ",\"args\":{\"name\":");
  AppendJson(name, json);
  absl::StrAppend(&json, "}},\n{\"name\":\"", kind,
                  "_sort_index\",\"ph\":\"M\",\"pid\":", rank,
                  ",\"tid\":", track, ",\"args\":{\"sort_index\":",
                  kind == "process" ? rank : static_cast<int64_t>(track), "}}");
}

}  // namespace

void Trace::PrintJson(std::ostream& out) const {
  std::string json =
      "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"producer\":\"lockstep\","
      "\"run\":";
  absl::StrAppend(&json, job_.run, ",\"job\":");
  AppendJson(job_.ranks.begin()->second->job, json);
  json += "},\n\"traceEvents\":[";
  const char* separator = "\n";
  for (const auto& each : steps_) {
    // A lambda can't capture a binding.
    const int64_t rank = each.first;
    json += std::exchange(separator, ",\n");
    AppendName(
        "process", rank, 0,
        absl::StrCat("rank ", rank, " (", job_.ranks.at(rank)->host, ")"),
        json);
    std::map<decltype(TraceSlice::track), size_t> tracks;
    ForEachSlice(rank, [&](const TraceSlice& slice) {
      const auto [track, is_new] =
          tracks.emplace(slice.track, tracks.size() + 1);
      if (is_new) {
        json += separator;
        AppendName("thread", rank, track->second, NameOfTrack(slice), json);
      }
      json += ",\n{\"name\":";
      AppendJson(slice.name, json);
      absl::StrAppend(&json, ",\"ph\":\"X\",\"pid\":", rank,
                      ",\"tid\":", track->second,
                      ",\"ts\":", Microseconds(slice.begin),
                      ",\"dur\":", Microseconds(slice.end - slice.begin));
      AppendArguments(slice, json);
      json += '}';
      if (slice.is_step) {
        absl::StrAppend(
            &json, ",\n{\"name\":\"ready batches\",\"ph\":\"C\",\"pid\":", rank,
            ",\"tid\":0,\"ts\":", Microseconds(slice.end),
            ",\"args\":{\"batches\":", slice.step->ready_batches, "}}");
      }
      constexpr size_t kMuch = size_t{1} << 20;
      if (json.size() < kMuch) return;
      out << json;
      json.clear();
    });
  }
  out << json << "\n]}\n";
}

std::vector<RankSummary> Trace::Summaries() const {
  std::vector<RankSummary> summaries;
  for (const auto& [rank, steps] : steps_) {
    const RankRun& run = *job_.ranks.at(rank);
    RankSummary& summary = summaries.emplace_back();
    summary.rank = rank;
    summary.host = run.host;
    summary.first_step = run.first_step.value_or(0);
    summary.last_step = run.last_step.value_or(0);
    if (!steps.empty()) summary.clock_error = 0;
    for (const EventsLine* const step : steps) {
      summary.steps.insert(step->step);
      summary.events += static_cast<int64_t>(step->events.size());
      summary.dropped += step->dropped;
      summary.dropped_steps += step->dropped_steps;
      const PlacedTime ended = time_line_->Place(rank, step->ended);
      if (!ended.error.has_value()) {
        summary.clock_error.reset();
      } else if (summary.clock_error.has_value()) {
        summary.clock_error = std::max(*summary.clock_error, *ended.error);
      }
    }
  }
  return summaries;
}

namespace {

// Returns for how long at least one of these intervals lasted.
int64_t TimeIn(std::vector<std::pair<int64_t, int64_t>> intervals) {
  std::sort(intervals.begin(), intervals.end());
  int64_t time = 0;
  int64_t until = std::numeric_limits<int64_t>::min();
  for (const auto& [begin, end] : intervals) {
    if (end > until) time += end - std::max(begin, until);
    until = std::max(until, end);
  }
  return time;
}

SlowStep SlowStepOf(int64_t rank, const EventsLine& line) {
  SlowStep step;
  step.step = line.step;
  step.took = line.ended - line.before;
  step.ranks = 1;
  step.rank = rank;
  step.between = line.asked - line.before;
  std::vector<std::pair<int64_t, int64_t>> operations;
  for (const RecordedEvent& event : line.events) {
    const int64_t end = event.end.value_or(line.ended);
    if (event.kind == StepEvent::Kind::kWait) {
      step.for_data += end - event.begin;
    } else if (event.kind == StepEvent::Kind::kOperation) {
      operations.emplace_back(event.begin, std::max(end, event.begin));
    }
  }
  step.in_operations = TimeIn(std::move(operations));
  return step;
}

}  // namespace

std::vector<SlowStep> Trace::Slowest(size_t most) const {
  std::map<int64_t, SlowStep> steps;
  for (const auto& [rank, lines] : steps_) {
    for (const EventsLine* const line : lines) {
      const SlowStep of_rank = SlowStepOf(rank, *line);
      const auto [found, is_new] = steps.emplace(line->step, of_rank);
      if (is_new) continue;
      SlowStep& step = found->second;
      const int64_t took = std::max(step.took, of_rank.took);
      const int64_t ranks = step.ranks + 1;
      if (of_rank.in_operations < step.in_operations) step = of_rank;
      step.took = took;
      step.ranks = ranks;
    }
  }
  std::vector<SlowStep> slowest;
  slowest.reserve(steps.size());
  for (const auto& [number, step] : steps) slowest.push_back(step);
  std::stable_sort(
      slowest.begin(), slowest.end(),
      [](const auto& a, const auto& b) { return a.took > b.took; });
  slowest.resize(std::min(slowest.size(), most));
  return slowest;
}

}  // namespace lockstep
