#include "lockstep/tools/cli/report_command.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>  // NOLINT: C++17's own
#include <optional>
#include <ostream>
#include <string>
#include <system_error>  // NOLINT: of <filesystem>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/metrics/records.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/output.h"
#include "lockstep/tools/cli/output_file.h"
#include "lockstep/tools/report/curves.h"
#include "lockstep/tools/report/launch_report.h"
#include "lockstep/tools/report/lost_time.h"
#include "lockstep/tools/report/report_page.h"
#include "lockstep/tools/report/run_report.h"
#include "lockstep/tools/words/words.h"

namespace lockstep {
namespace {

// ---- Words for people.

std::string Percent(double part, double whole) {
  return whole > 0 ? SayShare(part / whole) : "";
}

// Texts from records may be hostile, or long.
constexpr size_t kMostOfName = 60;
constexpr size_t kMostOfMessage = 4000;

std::string Name(absl::string_view text) {
  return absl::StrReplaceAll(Printable(text, kMostOfName), {{"\n", " "}});
}

std::string SayTime(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

absl::string_view NameOf(RunVerdict::Place place) {
  switch (place) {
    case RunVerdict::Place::kData:
      return "data";
    case RunVerdict::Place::kBetween:
      return "between";
    case RunVerdict::Place::kOwn:
      return "own";
    case RunVerdict::Place::kUnknown:
      break;
  }
  return "";
}

// ---- Text.

void PrintParagraph(const std::string& text, std::ostream& out) {
  if (!text.empty()) out << Wrapped(text, "") << "\n";
}

// Returns how many samples all ranks together read in a second.
std::string SayRows(const RunReport& report) {
  return absl::StrCat(SayNumber(report.rows_per_second), " rows");
}

// Prints how the launcher says that the run has ended.
void PrintEnd(const RunEnd& end, std::ostream& out) {
  if (!end.has_failed) {
    return PrintParagraph(
        end.exit_code == 0
            ? "The launcher says that the run has finished."
            : absl::StrCat("The launcher says that the run was stopped (exit "
                           "code ",
                           end.exit_code, ")."),
        out);
  }
  std::string blame = Printable(end.blame, kMostOfMessage);
  if (!blame.empty()) blame[0] = absl::ascii_toupper(blame[0]);
  PrintParagraph(absl::StrCat("The run has failed. ", blame), out);
  for (const std::string& each : end.ends) {
    out << "  " << Printable(each, kMostOfMessage) << "\n";
  }
  if (!end.message.empty()) {
    out << "  " << Printable(end.message, kMostOfMessage) << "\n";
  }
  if (!end.ends.empty() || !end.message.empty()) out << "\n";
}

// Prints the verdict: first of a failure, if there was one. The advice refers
// to what a report of one run has.
void PrintVerdict(const RunReport& report, bool has_advice, std::ostream& out) {
  if (report.end.has_value()) PrintEnd(*report.end, out);
  PrintParagraph(report.lost.verdict.sentence, out);
  if (has_advice) PrintParagraph(report.lost.verdict.advice, out);
}

void PrintRanks(const RunReport& report, std::ostream& out) {
  RecordTable table({"rank", "host", "came_last", "late", "data", "others",
                     "transfers", "between", "own", "median_step"});
  for (const RankTime& rank : report.lost.ranks) {
    table.AddRow({rank.rank, Name(rank.host), rank.times_last,
                  SaySeconds(rank.late), Percent(rank.for_data, rank.whole),
                  Percent(rank.for_others, rank.whole),
                  Percent(rank.in_transfer, rank.whole),
                  Percent(rank.between, rank.whole),
                  Percent(rank.own, rank.whole), SaySeconds(rank.median_step)});
  }
  table.PrintText(out);
}

// The text has the worst of everything. The other formats have more.
constexpr size_t kMostRows = 10;

void PrintWorst(const RunReport& report, std::ostream& out) {
  if (report.lost.worst.empty()) return;
  RecordTable table({"step", "lost_by_all", "longest", "came_last"});
  constexpr size_t kMostSteps = 5;
  for (size_t i = 0; i < std::min(report.lost.worst.size(), kMostSteps); ++i) {
    const LostStep& step = report.lost.worst[i];
    table.AddRow({step.step, SaySeconds(step.lost), SaySeconds(step.longest),
                  step.last < 0 ? "" : absl::StrCat("rank ", step.last)});
  }
  out << "\nThe steps that lost most:\n\n";
  table.PrintText(out);
}

void PrintOperations(const RunReport& report, std::ostream& out) {
  if (report.operations.empty()) return;
  RecordTable table({"operation", "elements", "count", "p50", "p99",
                     "slowest_rank", "its_p99"});
  for (size_t i = 0; i < std::min(report.operations.size(), kMostRows); ++i) {
    const OperationRow& row = report.operations[i];
    const OperationTimes& times = row.times;
    table.AddRow(
        {absl::StrCat(
             Name(times.group), " ", Name(times.operation),
             times.bucket < 0 ? "" : absl::StrCat(" bucket ", times.bucket)),
         absl::StrCat(WithCommas(times.count), " ", Name(times.dtype)),
         times.took.count(), SaySeconds(row.p50), SaySeconds(row.p99),
         absl::StrCat("rank ", row.slowest_rank), SaySeconds(row.slowest_p99)});
  }
  out << absl::StrCat("\nOperations up to step ",
                      WithCommas(report.operations_until),
                      ", from issue to end:\n\n");
  table.PrintText(out);
}

void PrintSlowest(const RunReport& report, std::ostream& out) {
  if (report.slowest.empty()) return;
  RecordTable table({"sample", "loader", "rank", "took", "timed_together"});
  for (size_t i = 0; i < std::min(report.slowest.size(), kMostRows); ++i) {
    const SlowSampleRow& row = report.slowest[i];
    table.AddRow({row.sample.index, Name(row.loader), row.rank,
                  SaySeconds(row.sample.seconds), row.sample.timed_together});
  }
  out << "\nThe slowest samples:\n\n";
  table.PrintText(out);
}

void PrintCurves(const RunReport& report, std::ostream& out) {
  if (report.curves.empty()) return;
  RecordTable table(
      {"metric", "last", "at_step", "least", "most", "not_finite"});
  for (size_t i = 0; i < std::min(report.curves.size(), kMostRows); ++i) {
    const Curve& curve = report.curves[i];
    table.AddRow({Name(curve.name), SayNumber(curve.last.value),
                  curve.last.step, SayNumber(curve.least.value),
                  SayNumber(curve.most.value), curve.not_finite});
  }
  out << "\nMetrics:\n\n";
  table.PrintText(out);
}

std::string SaySteps(const RunReport& report) {
  const int64_t left_out = report.lost.left_out;
  if (report.bins.empty()) return "no step";
  std::string text = absl::StrCat("steps ", WithCommas(report.first_step),
                                  " to ", WithCommas(report.last_step));
  absl::StrAppend(&text, ", which took ", SaySeconds(report.in_steps),
                  report.has_time_outside()
                      ? absl::StrCat(" of ", SaySeconds(report.by_clock))
                      : "");
  if (left_out == 0) return text;
  return absl::StrCat(
      text, ". Of these, ", Counted(report.lost.steps, "step", "steps"),
      report.lost.steps == 1 ? " counts" : " count", ", since some rank lacks ",
      "the other ", WithCommas(left_out), ", or has no times of them");
}

void PrintText(const RunReport& report, std::ostream& out) {
  PrintParagraph(absl::StrCat("Run ", report.number, " of ", report.runs,
                              ", which began at ", SayTime(report.began), ": ",
                              Counted(report.size, "rank", "ranks"), ", ",
                              SaySteps(report), "."),
                 out);
  PrintVerdict(report, /*has_advice=*/true, out);
  PrintParagraph(
      absl::StrCat(SayRows(report), " a second; a step took ",
                   SaySeconds(report.median_step), " (p99 ",
                   SaySeconds(report.p99_step),
                   "). The time of each rank, the one that was late most "
                   "first; late is for how much longer the median of the "
                   "others waited:"),
      out);
  PrintRanks(report, out);
  PrintWorst(report, out);
  PrintOperations(report, out);
  PrintSlowest(report, out);
  PrintCurves(report, out);
}

// Prints the numbers of two runs beside each other.
void PrintTextOfTwo(const RunReport& first, const RunReport& second,
                    std::ostream& out) {
  for (const RunReport* const report : {&first, &second}) {
    out << (report == &first ? "First: " : "Second: ")
        << Printable(report->path, kMostOfMessage) << ", run " << report->number
        << "\n\n";
    PrintVerdict(*report, /*has_advice=*/false, out);
  }
  // The mean seconds of a step on a rank.
  const auto part = [](const RunReport& report, double RankTime::*time) {
    double sum = 0;
    for (const RankTime& rank : report.lost.ranks) sum += rank.*time;
    return SaySeconds(sum / static_cast<double>(report.lost.steps) /
                      static_cast<double>(report.lost.ranks.size()));
  };
  RecordTable table({"what", "first", "second"});
  const auto add = [&](const char* what, const auto& of) {
    table.AddRow({what, of(first), of(second)});
  };
  add("ranks", [](const auto& report) { return absl::StrCat(report.size); });
  add("steps",
      [](const auto& report) { return WithCommas(report.lost.steps); });
  add("rows per second",
      [](const auto& report) { return SayNumber(report.rows_per_second); });
  add("median step",
      [](const auto& report) { return SaySeconds(report.median_step); });
  add("p99 step",
      [](const auto& report) { return SaySeconds(report.p99_step); });
  add("lost", [](const auto& report) {
    return SayShare(report.lost.verdict.lost_share);
  });
  const std::pair<const char*, double RankTime::*> parts[] = {
      {"a step: data", &RankTime::for_data},
      {"a step: others", &RankTime::for_others},
      {"a step: transfers", &RankTime::in_transfer},
      {"a step: between", &RankTime::between},
      {"a step: own", &RankTime::own}};
  for (const auto& each : parts) {
    add(each.first,
        [&](const auto& report) { return part(report, each.second); });
  }
  table.PrintText(out);
}

// ---- JSON and CSV.

// Returns the number with six digits, since the times of steps have no more.
double Rounded(double number) {
  double rounded = 0;
  return absl::SimpleAtod(absl::StrCat(number), &rounded) ? rounded : number;
}

RecordTable TableOfRanks(const RunReport& report) {
  RecordTable table({"rank", "host", "times_last", "late_seconds",
                     "late_for_data_seconds", "late_between_seconds",
                     "late_own_seconds", "whole_seconds", "for_data_seconds",
                     "for_others_seconds", "in_transfer_seconds",
                     "between_seconds", "own_seconds", "median_step_seconds"});
  for (const RankTime& rank : report.lost.ranks) {
    table.AddRow({rank.rank, rank.host, rank.times_last, Rounded(rank.late),
                  Rounded(rank.late_for_data), Rounded(rank.late_between),
                  Rounded(rank.late_own), Rounded(rank.whole),
                  Rounded(rank.for_data), Rounded(rank.for_others),
                  Rounded(rank.in_transfer), Rounded(rank.between),
                  Rounded(rank.own), Rounded(rank.median_step)});
  }
  return table;
}

RecordTable TableOfOperations(const RunReport& report) {
  RecordTable table({"group", "operation", "dtype", "elements", "bucket",
                     "count", "p50_seconds", "p99_seconds", "slowest_rank",
                     "slowest_p99_seconds"});
  for (const OperationRow& row : report.operations) {
    const OperationTimes& times = row.times;
    table.AddRow({times.group, times.operation, times.dtype, times.count,
                  times.bucket < 0 ? Cell() : Cell(times.bucket),
                  times.took.count(), Rounded(row.p50), Rounded(row.p99),
                  row.slowest_rank, Rounded(row.slowest_p99)});
  }
  return table;
}

RecordTable TableOfSlowest(const RunReport& report) {
  RecordTable table({"rank", "loader", "index", "seconds", "timed_together"});
  for (const SlowSampleRow& row : report.slowest) {
    table.AddRow({row.rank, row.loader, row.sample.index, row.sample.seconds,
                  row.sample.timed_together});
  }
  return table;
}

RecordTable TableOfWorst(const RunReport& report) {
  RecordTable table({"step", "lost_seconds", "longest_seconds", "last_rank"});
  for (const LostStep& step : report.lost.worst) {
    table.AddRow({step.step, Rounded(step.lost), Rounded(step.longest),
                  step.last < 0 ? Cell() : Cell(step.last)});
  }
  return table;
}

RecordTable TableOfCurves(const RunReport& report) {
  RecordTable table({"name", "is_of_steps", "last_step", "last", "least",
                     "least_step", "most", "most_step", "not_finite"});
  for (const Curve& curve : report.curves) {
    table.AddRow({curve.name, curve.is_of_steps, curve.last.step,
                  curve.last.value, curve.least.value, curve.least.step,
                  curve.most.value, curve.most.step, curve.not_finite});
  }
  return table;
}

std::string ToJson(const RunVerdict& verdict) {
  return absl::StrCat(
      "{\"kind\": ", JsonText(lockstep::Name(verdict)),
      ", \"sentence\": ", JsonText(verdict.sentence),
      ", \"advice\": ", JsonText(verdict.advice),
      ", \"lost_share\": ", Cell(Rounded(verdict.lost_share)).ToJson(),
      ", \"explained\": ", Cell(Rounded(verdict.explained)).ToJson(),
      ", \"between_share\": ", Cell(Rounded(verdict.between_share)).ToJson(),
      ", \"rank\": ",
      verdict.ranks.size() == 1 ? absl::StrCat(verdict.ranks[0]) : "null",
      ", \"ranks\": [", absl::StrJoin(verdict.ranks, ", "), "]",
      ", \"place\": ", JsonText(NameOf(verdict.place)), ", \"steps\": [",
      absl::StrJoin(verdict.steps, ", "),
      "],\n    \"of_data\": ", Cell(Rounded(verdict.of_data)).ToJson(),
      ", \"of_communication\": ",
      Cell(Rounded(verdict.of_communication)).ToJson(),
      ", \"of_slow_ranks\": ", Cell(Rounded(verdict.of_slow_ranks)).ToJson(),
      ", \"of_last_ranks\": ", Cell(Rounded(verdict.of_last_ranks)).ToJson(),
      ", \"of_few_steps\": ", Cell(Rounded(verdict.of_few_steps)).ToJson(),
      "}");
}

std::string JsonTexts(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  quoted.reserve(texts.size());
  for (const std::string& text : texts) quoted.push_back(JsonText(text));
  return absl::StrCat("[", absl::StrJoin(quoted, ", "), "]");
}

std::string ToJson(const std::optional<RunEnd>& end) {
  if (!end.has_value()) return "null";
  return absl::StrCat("{\"has_failed\": ", Cell(end->has_failed).ToJson(),
                      ", \"attempt\": ", end->attempt,
                      ", \"exit_code\": ", end->exit_code,
                      ", \"blame\": ", JsonText(end->blame),
                      ", \"message\": ", JsonText(end->message),
                      ", \"ends\": ", JsonTexts(end->ends), "}");
}

void PrintJson(const RunReport& report, std::ostream& out) {
  out << absl::StrCat(
      "{\n  \"path\": ", JsonText(report.path), ", \"run\": ", report.number,
      ", \"runs\": ", report.runs, ", \"began\": ",
      JsonText(absl::FormatTime(absl::RFC3339_full, report.began,
                                absl::UTCTimeZone())),
      ", \"is_whole\": ", Cell(report.is_whole).ToJson(),
      ", \"size\": ", report.size, ",\n  \"first_step\": ", report.first_step,
      ", \"last_step\": ", report.last_step, ", \"steps\": ", report.lost.steps,
      ", \"steps_left_out\": ", report.lost.left_out,
      ",\n  \"in_steps_seconds\": ", Cell(Rounded(report.in_steps)).ToJson(),
      ", \"by_clock_seconds\": ", Cell(Rounded(report.by_clock)).ToJson(),
      ", \"operations_until\": ", report.operations_until,
      ",\n  \"rows_per_second\": ",
      Cell(Rounded(report.rows_per_second)).ToJson(),
      ", \"median_step_seconds\": ", Cell(Rounded(report.median_step)).ToJson(),
      ", \"p99_step_seconds\": ", Cell(Rounded(report.p99_step)).ToJson(),
      ",\n  \"verdict\": ", ToJson(report.lost.verdict),
      ",\n  \"end\": ", ToJson(report.end),
      ",\n  \"notes\": ", JsonTexts(report.notes));
  const std::pair<const char*, RecordTable> tables[] = {
      {"ranks", TableOfRanks(report)},
      {"worst_steps", TableOfWorst(report)},
      {"operations", TableOfOperations(report)},
      {"slowest", TableOfSlowest(report)},
      {"curves", TableOfCurves(report)}};
  for (const auto& [name, table] : tables) {
    out << ",\n  \"" << name << "\": ";
    table.PrintJson(out, "  ");
  }
  out << "\n}";
}

void Print(const std::vector<RunReport>& reports, OutputFormat format,
           std::ostream& out) {
  const bool is_one = reports.size() == 1;
  switch (format) {
    case OutputFormat::kText:
      return is_one ? PrintText(reports[0], out)
                    : PrintTextOfTwo(reports[0], reports[1], out);
    case OutputFormat::kCsv:
      return TableOfRanks(reports[0]).PrintCsv(out);
    case OutputFormat::kJson:
      if (!is_one) out << "{\"first\": ";
      PrintJson(reports[0], out);
      if (!is_one) {
        out << ", \"second\": ";
        PrintJson(reports[1], out);
        out << "}";
      }
      out << "\n";
      return;
    default:
      return is_one ? PrintPage(reports[0], out)
                    : PrintComparison(reports[0], reports[1], out);
  }
}

absl::StatusOr<OutputFormat> FormatOf(const ReportCommand& command) {
  std::string format = command.format;
  if (format.empty()) {
    const std::string& output = command.output;
    format = output.empty()                    ? "text"
             : absl::EndsWith(output, ".json") ? "json"
             : absl::EndsWith(output, ".csv")  ? "csv"
             : absl::EndsWith(output, ".txt")  ? "text"
                                               : "html";
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const OutputFormat parsed,
      ParseFormat(format, {OutputFormat::kHtml, OutputFormat::kText,
                           OutputFormat::kJson, OutputFormat::kCsv}));
  if (parsed == OutputFormat::kCsv && !command.compare.empty()) {
    return absl::InvalidArgumentError(
        "--format=csv has the ranks of one run, so it does not go with "
        "--compare; give --format=json, or leave one of them out");
  }
  return parsed;
}

absl::Status CheckFlags(const ReportCommand& command) {
  if (command.compare_run.has_value() && command.compare.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--compare_run=", *command.compare_run,
                     " chooses a run of --compare, which is not given; give "
                     "--compare=PATH, or leave out --compare_run"));
  }
  for (const std::string& launch : command.launch) {
    std::error_code error;
    if (!command.output.empty() &&
        std::filesystem::equivalent(launch, command.output, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--output and --launch are the same file, ", launch,
                       ", which would be lost; give another --output"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> RunReportCommand(const CommandHost& host,
                                     const ReportCommand& command,
                                     std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OutputFormat format, FormatOf(command));
  LOCKSTEP_RETURN_IF_ERROR(CheckFlags(command));
  LOCKSTEP_ASSIGN_OR_RETURN(const OutputFile output,
                            OutputFile::Choose(command.output));
  std::vector<RunReport> reports;
  bool are_whole = true;
  bool has_end = command.launch.empty();
  const auto read = [&](RunReportOptions options) -> absl::Status {
    options.launches = command.launch;
    LOCKSTEP_ASSIGN_OR_RETURN(RunReport report,
                              ReadRunReport(options, host.tell));
    are_whole = are_whole && report.is_whole;
    has_end = has_end || report.end.has_value();
    reports.push_back(std::move(report));
    return absl::OkStatus();
  };
  RunReportOptions options;
  if (!command.compare.empty()) {
    options.path = command.compare;
    options.run = command.compare_run;
    const absl::Status status = read(options);
    if (!status.ok()) {
      return Annotate(status, absl::StrCat("--compare=", command.compare));
    }
  }
  options.path = command.path;
  options.run = command.run;
  options.metrics = command.metrics;
  LOCKSTEP_RETURN_IF_ERROR(read(options));
  if (!has_end) {
    host.tell("--launch has no attempt with the processes of this run");
  }
  LOCKSTEP_RETURN_IF_ERROR(output.Print(
      out, [&](std::ostream& file) { Print(reports, format, file); }));
  return are_whole ? 0 : 1;
}

}  // namespace lockstep
