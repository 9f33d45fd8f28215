#include "lockstep/tools/records/trace.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <memory>
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
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/json.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/metrics/records.h"
#include "lockstep/tools/records/rank_records.h"
#include "lockstep/tools/records/record_line.h"
#include "lockstep/tools/records/time_line.h"

namespace lockstep {

std::string SayNumbers(const std::set<int64_t>& numbers) {
  constexpr size_t kMostRuns = 6;
  std::vector<std::string> runs;
  size_t told = 0;
  for (auto at = numbers.begin();
       at != numbers.end() && runs.size() < kMostRuns;) {
    const int64_t first = *at;
    int64_t last = first;
    for (; at != numbers.end() && *at <= last + 1; ++at, ++told) last = *at;
    runs.push_back(first == last ? absl::StrCat(first)
                                 : absl::StrCat(first, " to ", last));
  }
  std::string text = absl::StrJoin(runs, ", ");
  if (told < numbers.size()) {
    absl::StrAppend(&text, " and ", numbers.size() - told, " more");
  }
  return text;
}

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

namespace {

// Tells some lines, and how many more there were, so that a thousand ranks do
// not tell a thousand.
// Thread-safety: thread-compatible.
class Notes {
 public:
  explicit Notes(const std::function<void(absl::string_view)>& tell)
      : tell_(tell) {}

  void Add(absl::string_view note) {
    if (++count_ <= kMost) tell_(note);
  }

  void End() const {
    if (count_ <= kMost) return;
    tell_(absl::StrCat(count_ - kMost, " more notes like these are left out"));
  }

 private:
  static constexpr int kMost = 10;
  const std::function<void(absl::string_view)>& tell_;
  int count_ = 0;
};

}  // namespace

absl::StatusOr<Trace> Trace::Read(
    absl::string_view path, const TraceOptions& options,
    const std::function<void(absl::string_view)>& tell) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<RankFiles> found,
                            FindRankFiles(path));
  Trace trace;
  Notes notes(tell);
  SteadyTime next = After(absl::Seconds(2));
  for (size_t i = 0; i < found.size(); ++i) {
    if (SteadyNow() >= next) {
      next = After(absl::Seconds(5));
      tell(absl::StrCat("reading records, ", i, " of ", found.size(),
                        " ranks are done"));
    }
    const auto keeps = [&](int64_t step) {
      return options.WantsRank(found[i].rank) && options.WantsStep(step);
    };
    trace.records_.push_back(
        std::make_unique<RankRecords>(ReadRankRecords(found[i], keeps)));
    for (const std::string& note : trace.records_.back()->notes) {
      notes.Add(note);
    }
  }
  trace.ListRuns();
  absl::Status chosen = trace.ChooseRun(options);
  if (chosen.ok()) chosen = trace.ChooseRanks(options);
  if (chosen.ok()) chosen = trace.ChooseSteps(options);
  for (const std::string& note : trace.notes_) notes.Add(note);
  notes.End();
  LOCKSTEP_RETURN_IF_ERROR(chosen);
  trace.time_line_.emplace(trace.ranks_);
  return trace;
}

// Each rank has its runs in their order, and may lack some. The numbers of runs
// are of a clock that can be set back, so they do not tell the order.
void Trace::ListRuns() {
  for (const auto& records : records_) {
    auto place = runs_.begin();
    for (const RankRun& run : records->runs) {
      if (run.run == 0) continue;
      const auto known = std::find(runs_.begin(), runs_.end(), run.run);
      place = known == runs_.end() ? runs_.insert(place, run.run) : known;
      ++place;
    }
  }
}

absl::Status Trace::ChooseRun(const TraceOptions& options) {
  if (!runs_.empty()) {
    number_ = options.run.value_or(runs());
    if (number_ < 1 || number_ > runs()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no run ", number_, ": the records have ",
                       runs(), runs() == 1 ? " run" : " runs"));
    }
    run_ = runs_[number_ - 1];
  }
  int64_t size = 0;
  std::set<int64_t> without;
  for (const auto& records : records_) {
    const RankRun* shown = nullptr;
    for (const RankRun& run : records->runs) {
      if (run.damage.ok()) {
        if (run.run == run_ && run_ > 0) shown = &run;
        continue;
      }
      // Without a number, it may be a part of the run that is shown.
      if (options.WantsRank(records->rank) &&
          (run.run == run_ || run.run == 0)) {
        is_whole_ = false;
      }
      notes_.push_back(absl::StrCat("rank ", records->rank, " is left out",
                                    run.run == run_ ? "" : " of a run", ": ",
                                    run.damage.message()));
    }
    if (shown == nullptr) continue;
    if (size == 0) size = shown->size;
    if (shown->size != size || records->rank >= size) {
      is_whole_ = false;
      notes_.push_back(absl::StrCat(
          "rank ", records->rank, " is left out: it says that the run has ",
          shown->size, " ranks, and others say ", size));
      continue;
    }
    ranks_[records->rank] = shown;
    if (records->runs.back().run == 0) without.insert(records->rank);
  }
  std::set<int64_t> missing;
  for (int64_t rank = 0; rank < size; ++rank) {
    if (options.WantsRank(rank) && ranks_.count(rank) == 0) {
      missing.insert(rank);
    }
  }
  if (!missing.empty()) {
    is_whole_ = false;
    notes_.push_back(absl::StrCat("of ", size,
                                  " ranks of this run, these are "
                                  "not shown: ",
                                  SayNumbers(missing)));
  }
  if (!without.empty()) {
    notes_.push_back(absl::StrCat(
        "a later start of the job has no records of ranks ",
        SayNumbers(without), ", such as one with events = \"none\""));
  }
  if (!ranks_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      is_whole_ ? "no rank has records of a run: the files are of an older "
                  "release, of a sink under [metrics], or of one with events = "
                  "\"none\""
                : "no rank has records of a run that can be used");
}

absl::Status Trace::ChooseRanks(const TraceOptions& options) {
  for (const int64_t rank : options.ranks) {
    if (ranks_.count(rank) > 0) continue;
    std::set<int64_t> known;
    for (const auto& [each, run] : ranks_) known.insert(known.end(), each);
    return absl::FailedPreconditionError(
        absl::StrCat("there are no records of rank ", rank,
                     " in this run; there are those of ", SayNumbers(known)));
  }
  return absl::OkStatus();
}

absl::Status Trace::ChooseSteps(const TraceOptions& options) {
  std::set<int64_t> all;
  std::set<int64_t> without;
  for (const auto& [rank, run] : ranks_) {
    if (!options.WantsRank(rank)) continue;
    std::vector<const EventsLine*>& chosen = steps_[rank];
    for (const EventsLine& events : run->events) {
      all.insert(events.step);
      if (options.WantsStep(events.step)) chosen.push_back(&events);
    }
    if (chosen.empty()) without.insert(without.end(), rank);
  }
  if (without.size() < steps_.size()) {
    if (!without.empty()) {
      notes_.push_back(
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
  absl::StrAppend(&json, run_, ",\"job\":");
  AppendJson(ranks_.begin()->second->job, json);
  json += "},\n\"traceEvents\":[";
  const char* separator = "\n";
  for (const auto& each : steps_) {
    // A lambda can't capture a binding.
    const int64_t rank = each.first;
    json += std::exchange(separator, ",\n");
    AppendName("process", rank, 0,
               absl::StrCat("rank ", rank, " (", ranks_.at(rank)->host, ")"),
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
    const RankRun& run = *ranks_.at(rank);
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

std::vector<absl::Time> Trace::begins() const {
  std::vector<absl::Time> times;
  for (const int64_t run : runs_) {
    times.push_back(absl::UnixEpoch() + absl::Microseconds(run));
  }
  return times;
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
