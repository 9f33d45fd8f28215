#include "lockstep/tools/cli/report_command.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/output.h"
#include "lockstep/tools/cli/output_file.h"
#include "lockstep/tools/report/curves.h"
#include "lockstep/tools/report/lost_time.h"
#include "lockstep/tools/report/report_page.h"
#include "lockstep/tools/report/run_report.h"

namespace lockstep {
namespace {

// ---- Words for people.

std::string Percent(double part, double whole) {
  if (whole <= 0) return "";
  return absl::StrCat(std::lround(part / whole * 100), " %");
}

std::string SaySeconds(double seconds) {
  // Three digits are enough for people.
  absl::Duration unit = absl::Nanoseconds(1);
  const absl::Duration whole = absl::Seconds(seconds);
  while (whole >= 1000 * unit) unit *= 10;
  return absl::FormatDuration(absl::Floor(whole + unit / 2, unit));
}

std::string SayTime(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

absl::string_view Name(RunVerdict::Place place) {
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

// Prints the verdict: first of a failure, if there was one.
void PrintVerdict(const RunReport& report, std::ostream& out) {
  if (report.end.has_value() && report.end->has_failed) {
    PrintParagraph(
        absl::StrCat("Failed: ",
                     absl::CHexEscape(report.end->blame.empty()
                                          ? "the launcher names no rank"
                                          : report.end->blame)),
        out);
    PrintParagraph(absl::CHexEscape(report.end->message), out);
  }
  PrintParagraph(report.lost.verdict.sentence, out);
  PrintParagraph(report.lost.verdict.advice, out);
}

void PrintRanks(const RunReport& report, std::ostream& out) {
  RecordTable table({"rank", "host", "came_last", "late", "for_data",
                     "for_others", "transfers", "between", "own",
                     "median_step"});
  for (const RankTime& rank : report.lost.ranks) {
    table.AddRow({rank.rank, absl::CHexEscape(rank.host), rank.times_last,
                  SaySeconds(rank.late), Percent(rank.for_data, rank.whole),
                  Percent(rank.for_others, rank.whole),
                  Percent(rank.in_transfer, rank.whole),
                  Percent(rank.between, rank.whole),
                  Percent(rank.own, rank.whole), SaySeconds(rank.median_step)});
  }
  table.PrintText(out);
}

// The text has the worst of everything. The other formats have all.
constexpr size_t kMostRows = 10;

void PrintOperations(const RunReport& report, std::ostream& out) {
  if (report.operations.empty()) return;
  RecordTable table({"operation", "elements", "count", "p50", "p99",
                     "slowest_rank", "its_p99"});
  for (const OperationRow& row : report.operations) {
    const OperationTimes& times = row.times;
    table.AddRow(
        {absl::StrCat(
             absl::CHexEscape(times.group), " ", times.operation,
             times.bucket < 0 ? "" : absl::StrCat(" bucket ", times.bucket)),
         absl::StrCat(WithCommas(times.count), " ", times.dtype),
         times.took.count(), SaySeconds(row.p50), SaySeconds(row.p99),
         absl::StrCat("rank ", row.slowest_rank), SaySeconds(row.slowest_p99)});
    if (&row - report.operations.data() + 1 == kMostRows) break;
  }
  out << "\nOperations, those that took most time first:\n\n";
  table.PrintText(out);
}

void PrintSlowest(const RunReport& report, std::ostream& out) {
  if (report.slowest.empty()) return;
  RecordTable table({"sample", "loader", "rank", "took", "timed_together"});
  for (const SlowSampleRow& row : report.slowest) {
    table.AddRow({row.sample.index, absl::CHexEscape(row.loader), row.rank,
                  SaySeconds(row.sample.seconds), row.sample.timed_together});
    if (&row - report.slowest.data() + 1 == kMostRows) break;
  }
  out << "\nThe slowest samples:\n\n";
  table.PrintText(out);
}

void PrintText(const RunReport& report, std::ostream& out) {
  out << absl::StrCat("Run ", report.number, " of ", report.runs,
                      ", which began at ", SayTime(report.began), ": ",
                      Counted(report.size, "rank", "ranks"), ", steps ",
                      WithCommas(report.first_step), " to ",
                      WithCommas(report.last_step), ".\n\n");
  PrintVerdict(report, out);
  PrintRanks(report, out);
  PrintOperations(report, out);
  PrintSlowest(report, out);
}

// Prints the numbers of two runs beside each other.
void PrintTextOfTwo(const RunReport& first, const RunReport& second,
                    std::ostream& out) {
  for (const RunReport* const report : {&first, &second}) {
    out << (report == &first ? "First: " : "Second: ")
        << absl::CHexEscape(report->path) << ", run " << report->number
        << "\n\n";
    PrintVerdict(*report, out);
  }
  const auto part = [](const RunReport& report, double RankTime::*time) {
    double sum = 0;
    double whole = 0;
    for (const RankTime& rank : report.lost.ranks) {
      sum += rank.*time;
      whole += rank.whole;
    }
    return Percent(sum, whole);
  };
  RecordTable table({"what", "first", "second"});
  const auto add = [&](const char* what, const auto& of) {
    table.AddRow({what, of(first), of(second)});
  };
  add("ranks", [](const auto& report) { return absl::StrCat(report.size); });
  add("steps",
      [](const auto& report) { return WithCommas(report.lost.steps); });
  add("rows per second", [](const auto& report) {
    return WithCommas(std::lround(report.rows_per_second));
  });
  add("median step",
      [](const auto& report) { return SaySeconds(report.median_step); });
  add("p99 step",
      [](const auto& report) { return SaySeconds(report.p99_step); });
  add("lost", [](const auto& report) {
    return Percent(report.lost.verdict.lost_share, 1);
  });
  add("for data", [&](const auto& r) { return part(r, &RankTime::for_data); });
  add("for other ranks",
      [&](const auto& r) { return part(r, &RankTime::for_others); });
  add("transfers",
      [&](const auto& r) { return part(r, &RankTime::in_transfer); });
  add("between steps",
      [&](const auto& r) { return part(r, &RankTime::between); });
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
                     "whole_seconds", "for_data_seconds", "for_others_seconds",
                     "in_transfer_seconds", "between_seconds", "own_seconds",
                     "median_step_seconds"});
  for (const RankTime& rank : report.lost.ranks) {
    table.AddRow({rank.rank, rank.host, rank.times_last, Rounded(rank.late),
                  Rounded(rank.late_for_data), Rounded(rank.late_between),
                  Rounded(rank.whole), Rounded(rank.for_data),
                  Rounded(rank.for_others), Rounded(rank.in_transfer),
                  Rounded(rank.between), Rounded(rank.own),
                  Rounded(rank.median_step)});
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

RecordTable TableOfCurves(const RunReport& report) {
  RecordTable table({"name", "is_of_steps", "last_step", "last", "least",
                     "least_step", "most", "most_step"});
  for (const Curve& curve : report.curves) {
    table.AddRow({curve.name, curve.is_of_steps, curve.last.step,
                  curve.last.value, curve.least.value, curve.least.step,
                  curve.most.value, curve.most.step});
  }
  return table;
}

std::string ToJson(const RunVerdict& verdict) {
  return absl::StrCat(
      "{\"kind\": ", JsonText(Name(verdict.kind)),
      ", \"sentence\": ", JsonText(verdict.sentence),
      ", \"advice\": ", JsonText(verdict.advice),
      ", \"lost_share\": ", Cell(Rounded(verdict.lost_share)).ToJson(),
      ", \"explained\": ", Cell(Rounded(verdict.explained)).ToJson(),
      ", \"rank\": ", verdict.rank < 0 ? "null" : absl::StrCat(verdict.rank),
      ", \"place\": ", JsonText(Name(verdict.place)), ", \"steps\": [",
      absl::StrJoin(verdict.steps, ", "),
      "],\n    \"of_data\": ", Cell(Rounded(verdict.of_data)).ToJson(),
      ", \"of_communication\": ",
      Cell(Rounded(verdict.of_communication)).ToJson(),
      ", \"of_one_rank\": ", Cell(Rounded(verdict.of_one_rank)).ToJson(),
      ", \"of_last_ranks\": ", Cell(Rounded(verdict.of_last_ranks)).ToJson(),
      ", \"of_few_steps\": ", Cell(Rounded(verdict.of_few_steps)).ToJson(),
      "}");
}

std::string ToJson(const std::optional<RunEnd>& end) {
  if (!end.has_value()) return "null";
  return absl::StrCat("{\"has_failed\": ", Cell(end->has_failed).ToJson(),
                      ", \"attempt\": ", end->attempt,
                      ", \"exit_code\": ", end->exit_code,
                      ", \"blame\": ", JsonText(end->blame),
                      ", \"message\": ", JsonText(end->message), "}");
}

void PrintJson(const RunReport& report, std::ostream& out) {
  std::vector<std::string> notes;
  notes.reserve(report.notes.size());
  for (const std::string& note : report.notes) notes.push_back(JsonText(note));
  out << absl::StrCat(
      "{\n  \"path\": ", JsonText(report.path), ", \"run\": ", report.number,
      ", \"runs\": ", report.runs, ", \"began\": ",
      JsonText(absl::FormatTime(absl::RFC3339_full, report.began,
                                absl::UTCTimeZone())),
      ", \"is_whole\": ", Cell(report.is_whole).ToJson(),
      ", \"size\": ", report.size, ",\n  \"first_step\": ", report.first_step,
      ", \"last_step\": ", report.last_step, ", \"steps\": ", report.lost.steps,
      ", \"steps_left_out\": ", report.lost.left_out,
      ",\n  \"rows_per_second\": ",
      Cell(Rounded(report.rows_per_second)).ToJson(),
      ", \"median_step_seconds\": ", Cell(Rounded(report.median_step)).ToJson(),
      ", \"p99_step_seconds\": ", Cell(Rounded(report.p99_step)).ToJson(),
      ",\n  \"verdict\": ", ToJson(report.lost.verdict),
      ",\n  \"end\": ", ToJson(report.end), ",\n  \"notes\": [",
      absl::StrJoin(notes, ", "), "]");
  const std::pair<const char*, RecordTable> tables[] = {
      {"ranks", TableOfRanks(report)},
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
  if (command.format.empty()) {
    return command.output.empty() ? OutputFormat::kText : OutputFormat::kHtml;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const OutputFormat format,
      ParseFormat(command.format, {OutputFormat::kHtml, OutputFormat::kText,
                                   OutputFormat::kJson, OutputFormat::kCsv}));
  if (format == OutputFormat::kCsv && !command.compare.empty()) {
    return absl::InvalidArgumentError(
        "--format=csv has the ranks of one run, so it does not go with "
        "--compare; give --format=json, or leave one of them out");
  }
  return format;
}

}  // namespace

absl::StatusOr<int> RunReportCommand(const CommandHost& host,
                                     const ReportCommand& command,
                                     std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OutputFormat format, FormatOf(command));
  if (command.compare_run.has_value() && command.compare.empty()) {
    return absl::InvalidArgumentError(
        "--compare_run says which run of --compare is meant, and there is no "
        "--compare");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const OutputFile output,
                            OutputFile::Choose(command.output));
  std::vector<RunReport> reports;
  bool are_whole = true;
  const auto read = [&](const RunReportOptions& options) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(RunReport report,
                              ReadRunReport(options, host.tell));
    are_whole = are_whole && report.is_whole;
    reports.push_back(std::move(report));
    return absl::OkStatus();
  };
  if (!command.compare.empty()) {
    RunReportOptions other;
    other.path = command.compare;
    other.run = command.compare_run;
    LOCKSTEP_RETURN_IF_ERROR(read(other));
  }
  RunReportOptions options;
  options.path = command.path;
  options.run = command.run;
  options.metrics = command.metrics;
  options.launches = command.launch;
  LOCKSTEP_RETURN_IF_ERROR(read(options));
  LOCKSTEP_RETURN_IF_ERROR(output.Print(
      out, [&](std::ostream& file) { Print(reports, format, file); }));
  return are_whole ? 0 : 1;
}

}  // namespace lockstep
