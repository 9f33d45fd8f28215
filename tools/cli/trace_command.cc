#include "lockstep/tools/cli/trace_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <set>
#include <string>
#include <system_error>  // NOLINT: what std::filesystem reports
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"
#include "lockstep/metrics/records.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/output.h"
#include "lockstep/tools/cli/remove_at_signal.h"
#include "lockstep/tools/records/rank_records.h"
#include "lockstep/tools/records/record_line.h"
#include "lockstep/tools/records/trace.h"

namespace lockstep {
namespace {

absl::StatusOr<TraceOptions> OptionsOf(const TraceCommand& command) {
  TraceOptions options;
  options.run = command.run;
  if (!command.steps.empty()) {
    const std::pair<absl::string_view, absl::string_view> words =
        absl::StrSplit(command.steps, absl::MaxSplits('-', 1));
    const bool is_range = absl::StrContains(command.steps, '-');
    const absl::string_view last = is_range ? words.second : words.first;
    auto& [from, to] = options.steps.emplace();
    if (!absl::SimpleAtoi(words.first, &from) || !absl::SimpleAtoi(last, &to) ||
        from < 1 || to < from) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--steps should be a step, such as 120, or the first and the last "
          "one, such as 100-200, but it is '",
          absl::CHexEscape(command.steps), "'"));
    }
  }
  for (const std::string& word : command.ranks) {
    int64_t rank = 0;
    if (!absl::SimpleAtoi(word, &rank) || rank < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--ranks should be numbers of ranks, such as 0,3, but one is '",
          absl::CHexEscape(word), "'"));
    }
    options.ranks.insert(rank);
  }
  if (command.max_error < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max_error should be 0s or more, such as 1ms, but it is ",
        absl::FormatDuration(command.max_error)));
  }
  return options;
}

void PrintCsv(const Trace& trace, std::ostream& out) {
  const std::vector<std::string> columns = {"rank",  "step",     "track",
                                            "name",  "begin_us", "end_us",
                                            "bytes", "index",    "rows"};
  bool is_first = true;
  for (const RankSummary& rank : trace.Summaries()) {
    RecordTable table(columns);
    trace.ForEachSlice(rank.rank, [&](const TraceSlice& slice) {
      Cell bytes;
      Cell index;
      Cell rows;
      if (slice.event != nullptr &&
          slice.event->kind == StepEvent::Kind::kOperation) {
        bytes = slice.event->bytes;
      } else if (slice.event != nullptr &&
                 slice.event->kind == StepEvent::Kind::kRead) {
        index = slice.event->index;
        rows = slice.event->rows;
      }
      if (slice.is_step) {
        table.PrintCsv(out, /*has_names=*/std::exchange(is_first, false));
        table = RecordTable(columns);
      }
      table.AddRow({rank.rank, slice.step->step, NameOfTrack(slice), slice.name,
                    Microseconds(slice.begin), Microseconds(slice.end), bytes,
                    index, rows});
    });
    table.PrintCsv(out, /*has_names=*/std::exchange(is_first, false));
  }
}

void PrintText(const Trace& trace, std::ostream& out) {
  out << absl::StrCat("run ", trace.number(), " of ", trace.runs(),
                      ", which began at ",
                      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", trace.began(),
                                       absl::UTCTimeZone()),
                      "\n\n");
  RecordTable table({"rank", "host", "all_steps", "events", "dropped",
                     "slow_steps_left_out", "clock_error"});
  std::set<int64_t> steps;
  for (const RankSummary& rank : trace.Summaries()) {
    steps.insert(rank.steps.begin(), rank.steps.end());
    table.AddRow(
        {rank.rank, rank.host,
         absl::StrCat(rank.first_step, " to ", rank.last_step), rank.events,
         rank.dropped, rank.dropped_steps,
         rank.clock_error.has_value()
             ? absl::FormatDuration(absl::Nanoseconds(*rank.clock_error))
             : "not known"});
  }
  table.PrintText(out);
  out << Wrapped(absl::StrCat("\nSteps with events: ", SayNumbers(steps)), "");
}

void Print(const Trace& trace, OutputFormat format, std::ostream& out) {
  switch (format) {
    case OutputFormat::kCsv:
      return PrintCsv(trace, out);
    case OutputFormat::kText:
      return PrintText(trace, out);
    default:
      return trace.PrintJson(out);
  }
}

// Refuses a file that would be lost: one that is not regular, such as a device,
// or one that has records.
absl::Status CheckOutput(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) &&
      !std::filesystem::is_regular_file(status)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--output should be a file, but ", path,
                     " is something else; without --output, the trace goes to "
                     "the standard output"));
  }
  const std::string name = std::filesystem::path(path).filename().string();
  if (IsNameOfRankFile(name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--output should be another file than those of records, but it is ",
        path));
  }
  return absl::OkStatus();
}

// Writes a file under another name, and gives it its name when it is whole.
absl::Status WriteFile(const Trace& trace, OutputFormat format,
                       const std::string& output) {
  // A link stays one.
  std::error_code ignored;
  const auto target = std::filesystem::canonical(output, ignored);
  const std::string path = ignored ? output : target.string();
  const std::string draft = absl::StrCat(path, ".", ::getpid(), ".new");
  const Descriptor made(
      ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  int error = errno;
  if (made.ok()) {
    const RemoveAtSignal unfinished(draft);
    errno = 0;
    std::ofstream file(draft, std::ios::binary | std::ios::trunc);
    Print(trace, format, file);
    file.close();
    if (file && std::rename(draft.c_str(), path.c_str()) == 0) {
      return absl::OkStatus();
    }
    error = errno != 0 ? errno : EIO;
    std::remove(draft.c_str());
  }
  return SystemError(error, absl::StrCat("can't write ", output),
                     absl::StatusCode::kUnavailable);
}

}  // namespace

absl::StatusOr<int> RunTrace(const CommandHost& host,
                             const TraceCommand& command, std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OutputFormat format,
                            ParseFormat(command.format));
  LOCKSTEP_ASSIGN_OR_RETURN(const TraceOptions options, OptionsOf(command));
  if (!command.output.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(CheckOutput(command.output));
  }
  const absl::StatusOr<Trace> trace =
      Trace::Read(command.path, options, host.tell);
  LOCKSTEP_RETURN_IF_ERROR(trace.status());
  // The summary shows how well the clocks are known.
  if (format != OutputFormat::kText) {
    LOCKSTEP_RETURN_IF_ERROR(trace->CheckClocks(command.max_error));
  }
  if (command.output.empty()) {
    Print(*trace, format, out);
  } else {
    LOCKSTEP_RETURN_IF_ERROR(WriteFile(*trace, format, command.output));
  }
  return trace->is_whole() ? 0 : 1;
}

}  // namespace lockstep
