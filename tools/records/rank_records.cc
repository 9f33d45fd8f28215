#include "lockstep/tools/records/rank_records.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <system_error>  // NOLINT: of <filesystem>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"
#include "lockstep/metrics/records.h"
#include "lockstep/tools/records/record_line.h"
#include "lockstep/tools/records/text_line.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// ---- Finding files.

// The name of a rank's file: "steps.rank0003.jsonl", or "rank0003.jsonl" where
// the sink's path is a folder.
struct FileName {
  std::string sink;  // "steps", or ""
  int64_t rank = 0;
  bool is_old = false;
};

std::optional<FileName> ParseFileName(absl::string_view name) {
  FileName file;
  file.is_old = absl::ConsumeSuffix(&name, ".old");
  if (!absl::ConsumeSuffix(&name, ".jsonl")) return std::nullopt;
  const size_t at = name.rfind("rank");
  if (at == name.npos || (at > 0 && name[at - 1] != '.')) return std::nullopt;
  const absl::string_view digits = name.substr(at + 4);
  // Only names that the sink gives are taken, with four digits or more.
  if (!absl::SimpleAtoi(digits, &file.rank) || file.rank < 0 ||
      digits != absl::StrCat(absl::Dec(file.rank, absl::kZeroPad4))) {
    return std::nullopt;
  }
  file.sink = std::string(name.substr(0, at > 0 ? at - 1 : 0));
  return file;
}

absl::Status NoFiles(absl::string_view path, absl::string_view what) {
  return absl::NotFoundError(
      absl::StrCat("no sink json_lines has written to ", path, ": ", what,
                   "; give the path that the sink has in the job's text"));
}

// The files of sinks in a folder, by the sink's name and the rank.
using Sinks =
    std::map<std::string, std::map<int64_t, std::vector<std::string>>>;

// Finds the files of the sink with this name, or of all sinks.
std::error_code FindIn(const fs::path& folder,
                       const std::optional<std::string>& wanted, Sinks& sinks) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const fs::path& each = at->path();
    const auto file = ParseFileName(each.filename().string());
    if (!file.has_value() || file->sink != wanted.value_or(file->sink)) {
      continue;
    }
    std::vector<std::string>& paths = sinks[file->sink][file->rank];
    paths.insert(file->is_old ? paths.begin() : paths.end(), each.string());
  }
  return error;
}

}  // namespace

bool IsNameOfRankFile(absl::string_view name) {
  return ParseFileName(name).has_value();
}

absl::StatusOr<std::vector<RankFiles>> FindRankFiles(absl::string_view path) {
  const fs::path given{std::string(path)};
  fs::path folder =
      given.has_parent_path() ? given.parent_path() : fs::path(".");
  const std::string name = given.filename().string();
  const std::optional<FileName> file = ParseFileName(name);
  std::optional<std::string> wanted = file.has_value() ? file->sink : name;
  Sinks sinks;
  std::error_code error = FindIn(folder, wanted, sinks);
  std::error_code ignored;
  if (sinks.empty() && fs::is_directory(given, ignored)) {
    folder = given;
    wanted = std::nullopt;
    error = FindIn(folder, wanted, sinks);
  }
  if (error) {
    return NoFiles(
        path, absl::StrCat("the folder ", folder.string(), " can't be read (",
                           error.message(), ")"));
  }
  if (sinks.empty()) {
    const std::string prefix = wanted.value_or("steps");
    const fs::path first =
        folder /
        absl::StrCat(prefix, prefix.empty() ? "" : ".", "rank0000.jsonl");
    return NoFiles(path, absl::StrCat("there is no file ",
                                      wanted.has_value() ? "" : "such as ",
                                      first.string()));
  }
  if (sinks.size() > 1) {
    std::vector<std::string> names;
    for (const auto& [sink, ranks] : sinks) {
      names.push_back(
          (folder / (sink.empty() ? "rank0000.jsonl" : sink)).string());
    }
    return absl::FailedPreconditionError(
        absl::StrCat("several sinks have files in ", path, ": give one of ",
                     absl::StrJoin(names, ", ")));
  }
  std::vector<RankFiles> found;
  for (auto& [rank, paths] : sinks.begin()->second) {
    found.push_back({rank, std::move(paths)});
  }
  return found;
}

// ---- Reading them.

namespace {

// Takes in the lines of a rank, and finds what does not fit together.
// Thread-safety: thread-compatible.
class Assembler {
 public:
  Assembler(RankRecords& records, const RecordsWanted& wanted)
      : records_(records), wanted_(wanted) {}

  absl::Status Take(RecordLine line) {
    if (line.rank != records_.rank) {
      return absl::InvalidArgumentError(
          absl::StrCat("it is of rank ", line.rank));
    }
    if (auto* const header = std::get_if<HeaderLine>(&line.content)) {
      return TakeHeader(*header);
    }
    if (!header_.has_value()) {
      return absl::InvalidArgumentError(
          "it comes before the line that says what the file is");
    }
    if (auto* const run = std::get_if<RunLine>(&line.content)) {
      return TakeRun(std::move(*run));
    }
    if (run_ == nullptr) BeginRun(RunLine());
    if (const auto* const step = std::get_if<StepLine>(&line.content)) {
      return TakeStep(*step, line.time);
    }
    if (auto* const events = std::get_if<EventsLine>(&line.content)) {
      return TakeEvents(std::move(*events));
    }
    if (auto* const times = std::get_if<TimesLine>(&line.content)) {
      if (wanted_.times) TakeTimes(std::move(*times));
    } else if (auto* const slow = std::get_if<SlowestLine>(&line.content)) {
      if (wanted_.times) run_->slowest[slow->loader] = std::move(slow->samples);
    } else if (std::holds_alternative<UnknownLine>(line.content)) {
      ++unknown_;
    }
    return absl::OkStatus();
  }

  // Takes in that a line of a process is wrong, which is not read further. It
  // is a new process if `is_first`.
  void Refuse(const absl::Status& why, bool is_first = false) {
    if (run_ == nullptr || is_first) BeginRun(RunLine());
    run_->damage.Update(why);
  }

  // Returns true if the rest of this process's lines is of no use.
  bool is_refused() const { return run_ != nullptr && !run_->damage.ok(); }

  void End() {
    if (unknown_ > 0) {
      records_.notes.push_back(
          absl::StrCat("rank ", records_.rank, ": ", unknown_,
                       " lines are of kinds that this release does not know"));
    }
    for (const RankRun& run : records_.runs) {
      const std::string process = absl::StrCat(
          "rank ", records_.rank, ": of the process ", run.pid, ", ");
      if (run.lost_steps > 0) {
        records_.notes.push_back(absl::StrCat(
            process, "the first ", run.lost_steps,
            " steps are not there, since its files were full twice (raise "
            "max_bytes) or the one with .old is missing"));
      }
      if (run.missing_steps > 0) {
        records_.notes.push_back(
            absl::StrCat(process, run.missing_steps,
                         " steps are missing, as after a disk was full"));
      }
    }
  }

 private:
  absl::Status TakeHeader(const HeaderLine& header) {
    if (header.version > 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("it has version ", header.version,
                       " of the format, and this release reads 1 and 2"));
    }
    header_ = header;
    // The process may go on in another file.
    if (header.file == 1) run_ = nullptr;
    return absl::OkStatus();
  }

  absl::Status TakeRun(RunLine line) {
    // A file that a process goes on with has the line once more.
    if (run_ != nullptr && run_->run == line.run) return absl::OkStatus();
    for (const RankRun& run : records_.runs) {
      if (run.run != line.run) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "two processes of this rank have written records of one run (",
          run.pid, " and ", header_->pid, ")"));
    }
    BeginRun(std::move(line));
    return absl::OkStatus();
  }

  void BeginRun(RunLine line) {
    run_ = &records_.runs.emplace_back();
    run_->run = line.run;
    if (header_.has_value()) {
      run_->size = header_->size;
      run_->pid = header_->pid;
    }
    run_->host = std::move(line.host);
    run_->clock = std::move(line.clock);
    run_->job = std::move(line.job);
  }

  absl::Status TakeStep(const StepLine& line, double time) {
    const int64_t step = line.step;
    if (run_->last_step.has_value() && step < *run_->last_step) {
      return absl::InvalidArgumentError(
          absl::StrCat("step ", step, " comes after step ", *run_->last_step));
    }
    if (run_->last_step.has_value() && step > *run_->last_step + 1) {
      run_->missing_steps += step - *run_->last_step - 1;
    }
    run_->last_step = step;
    if (wanted_.times) TakeTimesOfStep(line, time);
    if (run_->first_step.has_value()) return absl::OkStatus();
    run_->first_step = step;
    if (header_->first_step.has_value() && *header_->first_step < step) {
      run_->lost_steps = step - *header_->first_step;
    }
    return absl::OkStatus();
  }

  // A step can have several lines, of which the last number of a name counts.
  void TakeTimesOfStep(const StepLine& line, double time) {
    const float unknown = std::numeric_limits<float>::quiet_NaN();
    std::vector<StepTimes>& steps = run_->steps;
    if (steps.empty()) run_->first_ended = time;
    run_->last_ended = time;
    if (steps.empty() || steps.back().step != line.step) {
      steps.push_back({line.step, unknown, unknown, unknown, unknown, unknown,
                       unknown, unknown});
    }
    StepTimes& times = steps.back();
    float blocked = unknown;
    float average = unknown;
    float all = unknown;
    const std::pair<absl::string_view, float*> places[] = {
        {"seconds", &times.whole},
        {"between_seconds", &times.between},
        {"data_seconds", &times.for_data},
        {"blocked_seconds", &blocked},
        {"average_seconds", &average},
        {"collective_seconds", &all},
        {"collectives", &times.collectives},
        {"rows", &times.rows},
        {"ready_batches", &times.ready_batches}};
    for (const auto& [name, value] : line.metrics) {
      for (const auto& [known, place] : places) {
        if (name == known) *place = static_cast<float>(value);
      }
    }
    if (std::isnan(blocked)) blocked = average > 0 ? average : all;
    if (std::isnan(blocked)) return;
    // The first wait of an epoch contains a collective if steps are uneven.
    times.blocked = std::min(blocked, times.whole - times.for_data);
  }

  // Each line of an operation replaces the one before.
  void TakeTimes(TimesLine line) {
    OperationTimes& times = line.times;
    run_->operations_until = line.step;
    const auto same = std::find_if(
        run_->operations.begin(), run_->operations.end(),
        [&times](const OperationTimes& each) {
          return each.group == times.group &&
                 each.operation == times.operation &&
                 each.dtype == times.dtype && each.count == times.count &&
                 each.bucket == times.bucket;
        });
    if (same != run_->operations.end()) {
      *same = std::move(times);
    } else {
      run_->operations.push_back(std::move(times));
    }
  }

  absl::Status TakeEvents(EventsLine events) {
    if (!run_->events.empty()) {
      LOCKSTEP_RETURN_IF_ERROR(CheckFollows(run_->events.back(), events));
    }
    if (wanted_.times) {
      TakeReads(events);
      TakeCollectives(events);
    }
    if (wanted_.events_of == nullptr || !wanted_.events_of(events.step)) {
      events.events = {};
    }
    run_->events.push_back(std::move(events));
    return absl::OkStatus();
  }

  void TakeReads(const EventsLine& events) {
    double seconds = 0;
    for (const RecordedEvent& event : events.events) {
      if (event.kind != StepEvent::Kind::kRead &&
          event.kind != StepEvent::Kind::kComplete) {
        continue;
      }
      constexpr double kNanosecond = 1e-9;
      seconds += static_cast<double>(*event.end - event.begin) * kNanosecond;
    }
    run_->read_seconds += seconds;
    run_->read_steps += seconds > 0 ? 1 : 0;
  }

  // Ranks issue the collectives of a group in the same order, and those of
  // several groups in any order.
  void TakeCollectives(const EventsLine& events) {
    constexpr size_t kMost = 64;
    std::vector<const RecordedEvent*> found;
    for (const RecordedEvent& event : events.events) {
      if (event.kind != StepEvent::Kind::kOperation || event.failed) continue;
      const bool waits_for_all = event.operation == "all_reduce" ||
                                 event.operation == "all_reduce_shards" ||
                                 event.operation == "all_gather" ||
                                 event.operation == "reduce_scatter" ||
                                 event.operation == "all_to_all" ||
                                 event.operation == "barrier";
      if (waits_for_all && event.end.has_value()) found.push_back(&event);
    }
    if (found.empty() || found.size() > kMost) return;
    std::stable_sort(found.begin(), found.end(),
                     [](const RecordedEvent* a, const RecordedEvent* b) {
                       return std::tie(a->group, a->begin) <
                              std::tie(b->group, b->begin);
                     });
    CollectiveTimes& times = run_->collectives.emplace_back();
    times.step = events.step;
    for (const RecordedEvent* const event : found) {
      constexpr float kNanosecond = 1e-9F;
      times.took.push_back(static_cast<float>(*event->end - event->begin) *
                           kNanosecond);
    }
  }

  static absl::Status CheckFollows(const EventsLine& last,
                                   const EventsLine& next) {
    if (next.step <= last.step) {
      return absl::InvalidArgumentError(
          absl::StrCat("the events of step ", next.step,
                       " come after those of step ", last.step));
    }
    if (next.before < last.ended) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the steady clock goes back: step ", next.step, " begins ",
          last.ended - next.before, " ns before the end of step ", last.step));
    }
    return absl::OkStatus();
  }

  RankRecords& records_;
  const RecordsWanted& wanted_;
  std::optional<HeaderLine> header_;
  RankRun* run_ = nullptr;  // null: its line has not come
  int64_t unknown_ = 0;
};

bool IsHeader(absl::string_view text) {
  return absl::StartsWith(text, "{\"format\":");
}

// Reads the lines of a file.
void ReadLines(const std::string& path, Assembler& assembler,
               std::vector<std::string>& torn) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return assembler.Refuse(absl::DataLossError(
        absl::StrCat(path, " is no file that can be read as a whole")));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return assembler.Refuse(
        SystemError(errno, absl::StrCat("can't open ", path)));
  }
  TextLine line;
  for (int64_t number = 1; ReadTextLine(file, line); ++number) {
    if (assembler.is_refused() && !IsHeader(line.text)) continue;
    const std::string place = absl::StrCat(path, ", line ", number, ": ");
    if (line.is_too_long) {
      return assembler.Refuse(
          absl::DataLossError(absl::StrCat(place, "it is too long")));
    }
    absl::StatusOr<RecordLine> parsed = ParseRecordLine(line.text);
    // A process that is killed, or a disk that is full, leaves the beginning of
    // a line, which does not end with the brace of an object.
    if (!parsed.ok() && !absl::EndsWith(line.text, "}")) {
      torn.push_back(
          absl::StrCat(place, "it is incomplete, and is not counted"));
      continue;
    }
    absl::Status status = parsed.status();
    if (status.ok()) status = assembler.Take(*std::move(parsed));
    if (!status.ok()) {
      assembler.Refuse(
          absl::DataLossError(absl::StrCat(place, status.message())),
          /*is_first=*/IsHeader(line.text));
    }
  }
}

}  // namespace

RankRecords ReadRankRecords(const RankFiles& files,
                            const RecordsWanted& wanted) {
  RankRecords records;
  records.rank = files.rank;
  Assembler assembler(records, wanted);
  std::vector<std::string> torn;
  for (const std::string& path : files.paths) {
    ReadLines(path, assembler, torn);
  }
  if (!torn.empty()) {
    records.notes.push_back(torn.front());
    if (torn.size() > 1) {
      absl::StrAppend(&records.notes.back(), "; so are ", torn.size() - 1,
                      " more lines of this rank");
    }
  }
  assembler.End();
  return records;
}

}  // namespace lockstep
