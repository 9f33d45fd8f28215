#include "lockstep/tools/cli/trace_command.h"

#include <cstdint>
#include <ostream>
#include <set>
#include <string>
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
#include "lockstep/base/status_macros.h"
#include "lockstep/metrics/records.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/output.h"
#include "lockstep/tools/cli/output_file.h"
#include "lockstep/tools/records/job_records.h"
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
  const std::vector<std::string> columns = {
      "rank",   "step",  "why",   "track", "name",  "begin_us",
      "end_us", "bytes", "index", "rows",  "failed"};
  bool is_first = true;
  for (const RankSummary& rank : trace.Summaries()) {
    RecordTable table(columns);
    trace.ForEachSlice(rank.rank, [&](const TraceSlice& slice) {
      Cell bytes;
      Cell index;
      Cell rows;
      Cell failed;
      if (slice.event != nullptr &&
          slice.event->kind == StepEvent::Kind::kOperation) {
        bytes = slice.event->bytes;
        failed = slice.event->failed;
      } else if (slice.event != nullptr &&
                 slice.event->kind == StepEvent::Kind::kRead) {
        index = slice.event->index;
        rows = slice.event->rows;
      }
      if (slice.is_step) {
        table.PrintCsv(out, /*has_names=*/std::exchange(is_first, false));
        table = RecordTable(columns);
      }
      table.AddRow({rank.rank, slice.step->step,
                    std::string(Name(slice.step->why)), NameOfTrack(slice),
                    slice.name, Microseconds(slice.begin),
                    Microseconds(slice.end), bytes, index, rows, failed});
    });
    table.PrintCsv(out, /*has_names=*/std::exchange(is_first, false));
  }
}

std::string TimeOf(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

std::string DurationOf(int64_t nanoseconds) {
  return absl::FormatDuration(absl::Nanoseconds(nanoseconds));
}

// Prints the steps that took longest.
void PrintSlowest(const Trace& trace, std::ostream& out) {
  RecordTable table({"step", "took", "ranks", "waited_least", "for_data",
                     "in_operations", "between_steps"});
  for (const SlowStep& step : trace.Slowest(/*most=*/10)) {
    table.AddRow({step.step, DurationOf(step.took), step.ranks,
                  absl::StrCat("rank ", step.rank), DurationOf(step.for_data),
                  DurationOf(step.in_operations), DurationOf(step.between)});
  }
  out << "\nThe slowest of these steps, and where the time of the rank went "
         "that waited\nleast for others:\n\n";
  table.PrintText(out);
}

void PrintText(const Trace& trace, std::ostream& out) {
  const std::vector<absl::Time> begins = trace.begins();
  for (size_t i = 0; i < begins.size(); ++i) {
    const bool is_shown = static_cast<int64_t>(i) + 1 == trace.number();
    out << absl::StrCat("run ", i + 1, " of ", begins.size(),
                        ", which began at ", TimeOf(begins[i]),
                        is_shown || begins.size() == 1
                            ? ""
                            : absl::StrCat(" (--run=", i + 1, " shows it)"),
                        "\n");
  }
  out << "\n";
  RecordTable table({"rank", "host", "all_steps", "events", "dropped",
                     "slow_steps_left_out", "clock_error"});
  std::set<int64_t> steps;
  for (const RankSummary& rank : trace.Summaries()) {
    steps.insert(rank.steps.begin(), rank.steps.end());
    table.AddRow({rank.rank, absl::CHexEscape(rank.host),
                  absl::StrCat(rank.first_step, " to ", rank.last_step),
                  rank.events, rank.dropped, rank.dropped_steps,
                  rank.clock_error.has_value() ? DurationOf(*rank.clock_error)
                                               : "not known"});
  }
  table.PrintText(out);
  out << Wrapped(absl::StrCat("\nSteps with events: ", SayNumbers(steps)), "");
  PrintSlowest(trace, out);
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

}  // namespace

absl::StatusOr<int> RunTrace(const CommandHost& host,
                             const TraceCommand& command, std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OutputFormat format,
                            ParseFormat(command.format));
  LOCKSTEP_ASSIGN_OR_RETURN(const TraceOptions options, OptionsOf(command));
  LOCKSTEP_ASSIGN_OR_RETURN(const OutputFile output,
                            OutputFile::Choose(command.output));
  const absl::StatusOr<Trace> trace =
      Trace::Read(command.path, options, host.tell);
  LOCKSTEP_RETURN_IF_ERROR(trace.status());
  // The summary shows how well the clocks are known.
  if (format != OutputFormat::kText) {
    LOCKSTEP_RETURN_IF_ERROR(trace->CheckClocks(command.max_error));
  }
  LOCKSTEP_RETURN_IF_ERROR(output.Print(
      out, [&](std::ostream& file) { Print(*trace, format, file); }));
  return trace->is_whole() ? 0 : 1;
}

}  // namespace lockstep
