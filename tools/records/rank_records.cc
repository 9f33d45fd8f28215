#include "lockstep/tools/records/rank_records.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <system_error>  // NOLINT: of <filesystem>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"
#include "lockstep/tools/records/record_line.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A longer line is none of the sink's. Parsing it would take much memory.
constexpr size_t kLongestLine = size_t{64} << 20;

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
  const bool are_digits =
      digits.size() >= 4 &&
      std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit);
  if (!are_digits || !absl::SimpleAtoi(digits, &file.rank)) return std::nullopt;
  file.sink = std::string(name.substr(0, at > 0 ? at - 1 : 0));
  return file;
}

absl::Status NoFiles(absl::string_view path, absl::string_view what) {
  return absl::NotFoundError(absl::StrCat(
      "there are no records of ranks at ", path, ": ", what,
      "; give the path of the sink json_lines under [rank_metrics]"));
}

}  // namespace

absl::StatusOr<std::vector<RankFiles>> FindRankFiles(absl::string_view path) {
  const fs::path given{std::string(path)};
  std::error_code error;
  fs::path folder = given;
  std::optional<std::string> wanted;
  if (!fs::is_directory(given, error)) {
    folder = given.has_parent_path() ? given.parent_path() : fs::path(".");
    const std::string name = given.filename().string();
    const std::optional<FileName> file = ParseFileName(name);
    wanted = file.has_value() ? file->sink : name;
  }
  std::map<std::string, std::map<int64_t, std::vector<std::string>>> sinks;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto file = ParseFileName(entry.path().filename().string());
    if (!file.has_value() || file->sink != wanted.value_or(file->sink)) {
      continue;
    }
    std::vector<std::string>& paths = sinks[file->sink][file->rank];
    paths.insert(file->is_old ? paths.begin() : paths.end(),
                 entry.path().string());
  }
  if (error) {
    return NoFiles(path, absl::StrCat("the folder ", folder.string(),
                                      " can't be read (", error.message(),
                                      ")"));
  }
  if (sinks.empty()) {
    return NoFiles(path, absl::StrCat("looked for ", folder.string(), "/",
                                      wanted.value_or(""),
                                      wanted.value_or("").empty() ? "" : ".",
                                      "rank0000.jsonl and so on"));
  }
  if (sinks.size() > 1) {
    std::vector<std::string> names;
    for (const auto& [name, ranks] : sinks) {
      names.push_back((folder / (name.empty() ? "rank0000.jsonl" : name))
                          .string());
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
  explicit Assembler(RankRecords& records) : records_(records) {}

  absl::Status Take(RecordLine line) {
    if (line.rank != records_.rank) {
      return absl::InvalidArgumentError(
          absl::StrCat("it is of rank ", line.rank));
    }
    if (auto* const header = std::get_if<HeaderLine>(&line.content)) {
      return TakeHeader(line.time, *header);
    }
    if (!header_.has_value()) {
      return absl::InvalidArgumentError(
          "it comes before the line that says what the file is");
    }
    if (auto* const run = std::get_if<RunLine>(&line.content)) {
      return TakeRun(line.time, *std::move(run));
    }
    if (run_ == nullptr) BeginRun(line.time, RunLine());
    if (const auto* const step = std::get_if<StepLine>(&line.content)) {
      return TakeStep(step->step);
    }
    if (auto* const events = std::get_if<EventsLine>(&line.content)) {
      return TakeEvents(*std::move(events));
    }
    if (std::holds_alternative<UnknownLine>(line.content)) ++unknown_;
    return absl::OkStatus();
  }

  void End() {
    if (unknown_ > 0) {
      records_.notes.push_back(absl::StrCat(
          "rank ", records_.rank, ": ", unknown_,
          " lines are of kinds that this release does not know"));
    }
  }

 private:
  absl::Status TakeHeader(double time, const HeaderLine& header) {
    if (header.version > 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("it has version ", header.version,
                       " of the format, and this release reads 1 and 2"));
    }
    const bool is_same = header_.has_value() && header_->pid == header.pid &&
                         header.first_step.has_value();
    header_ = header;
    if (!is_same) run_ = nullptr;
    time_ = time;
    return absl::OkStatus();
  }

  absl::Status TakeRun(double time, RunLine line) {
    // A file that a process goes on with has the line once more.
    if (run_ != nullptr && run_->run == line.run) return absl::OkStatus();
    for (const RankRun& run : records_.runs) {
      if (run.run != line.run) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "two processes of this rank have written records of one run (",
          run.pid, " and ", header_->pid, ")"));
    }
    BeginRun(time, std::move(line));
    return absl::OkStatus();
  }

  void BeginRun(double time, RunLine line) {
    run_ = &records_.runs.emplace_back();
    run_->run = line.run;
    run_->began = time_ > 0 ? time_ : time;
    run_->size = header_->size;
    run_->pid = header_->pid;
    run_->host = std::move(line.host);
    run_->clock = std::move(line.clock);
    run_->job = std::move(line.job);
    last_ended_ = 0;
    last_events_.reset();
  }

  absl::Status TakeStep(int64_t step) {
    if (run_->last_step.has_value() && step < *run_->last_step) {
      return absl::InvalidArgumentError(absl::StrCat(
          "step ", step, " comes after step ", *run_->last_step));
    }
    run_->last_step = step;
    if (run_->first_step.has_value()) return absl::OkStatus();
    run_->first_step = step;
    if (header_->first_step.has_value() && *header_->first_step < step) {
      run_->lost_steps = step - *header_->first_step;
    }
    return absl::OkStatus();
  }

  absl::Status TakeEvents(EventsLine events) {
    if (last_events_.has_value() && events.step <= *last_events_) {
      return absl::InvalidArgumentError(
          absl::StrCat("the events of step ", events.step,
                       " come after those of step ", *last_events_));
    }
    if (events.before < last_ended_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the steady clock goes back: step ", events.step, " begins ",
          last_ended_ - events.before, " ns before the end of step ",
          last_events_.value_or(0)));
    }
    last_events_ = events.step;
    last_ended_ = events.ended;
    run_->events.push_back(std::move(events));
    return absl::OkStatus();
  }

  RankRecords& records_;
  std::optional<HeaderLine> header_;
  double time_ = 0;         // of the header
  RankRun* run_ = nullptr;  // null: its line has not come
  std::optional<int64_t> last_events_;
  int64_t last_ended_ = 0;
  int64_t unknown_ = 0;
};

bool IsHeader(absl::string_view text) {
  return absl::StartsWith(text, "{\"format\":");
}

// Reads the lines of a file.
absl::Status ReadLines(const std::string& path, Assembler& assembler,
                       RankRecords& records) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return SystemError(errno, absl::StrCat("can't open ", path));
  // A line that can't be read is told when the next one has come: a process
  // that was killed leaves an incomplete line at the end of the file, or before
  // the first line of the next process.
  absl::Status torn;
  std::string text;
  for (int64_t number = 1; std::getline(file, text); ++number) {
    const bool is_whole = !file.eof();
    if (!torn.ok() && !IsHeader(text)) return torn;
    if (!torn.ok()) records.notes.emplace_back(torn.message());
    torn = absl::OkStatus();
    absl::StatusOr<RecordLine> line =
        text.size() > kLongestLine
            ? absl::InvalidArgumentError("it is longer than 64 MiB")
            : ParseRecordLine(text);
    const bool is_parsed = line.ok();
    absl::Status status = line.status();
    if (is_parsed) status = assembler.Take(*std::move(line));
    if (status.ok() && is_whole) continue;
    const std::string place = absl::StrCat(path, ", line ", number, ": ");
    if (status.ok()) {
      status = absl::InvalidArgumentError("it has no end");
    } else if (is_parsed) {
      return absl::DataLossError(absl::StrCat(place, status.message()));
    }
    torn = absl::DataLossError(absl::StrCat(
        place, "it is incomplete or damaged: ", status.message()));
  }
  if (file.bad()) return SystemError(errno, absl::StrCat("can't read ", path));
  if (!torn.ok()) records.notes.emplace_back(torn.message());
  return absl::OkStatus();
}

}  // namespace

RankRecords ReadRankRecords(const RankFiles& files) {
  RankRecords records;
  records.rank = files.rank;
  Assembler assembler(records);
  for (const std::string& path : files.paths) {
    records.damage = ReadLines(path, assembler, records);
    if (!records.damage.ok()) return records;
  }
  assembler.End();
  for (const RankRun& run : records.runs) {
    if (run.lost_steps == 0) continue;
    records.notes.push_back(absl::StrCat(
        "rank ", records.rank, ": the first ", run.lost_steps,
        " steps of the process ", run.pid,
        " are lost, since its files were full twice: raise max_bytes"));
  }
  return records;
}

}  // namespace lockstep
