#include "lockstep/tools/report/report_page.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/tools/report/lost_time.h"
#include "lockstep/tools/report/page_parts.h"
#include "lockstep/tools/report/page_text.h"
#include "lockstep/tools/report/run_report.h"
#include "lockstep/tools/report/step_pictures.h"
#include "lockstep/tools/report/svg.h"
#include "lockstep/tools/words/words.h"

namespace lockstep::internal_report {
namespace {

constexpr size_t kMostRows = 64;  // of a table
constexpr size_t kMostCurves = 24;

// ---- Where the time went.

// Returns a table of the ranks from one place to another in their list.
std::string RankTable(const RunReport& report, size_t begin, size_t end) {
  using Kind = HtmlTable::Kind;
  const auto marked = [](absl::string_view style, absl::string_view name) {
    return absl::StrCat("<i class=\"", style, "\"></i>", name);
  };
  HtmlTable table(
      begin > 0 ? "The other ranks"
                : absl::StrCat("Each rank in ",
                               Counted(report.lost.steps, "step", "steps"),
                               ", the one that is late most first. Late is for "
                               "how much longer than this rank the median of "
                               "the others waited in collectives."),
      {{"rank", Kind::kNumber},
       {"host"},
       {"came last", Kind::kNumber},
       {"late", Kind::kNumber},
       {"its time", Kind::kPicture},
       {marked("data", "data"), Kind::kNumber},
       {marked("others", "others"), Kind::kNumber},
       {marked("transfer", "transfers"), Kind::kNumber},
       {marked("between", "between"), Kind::kNumber},
       {marked("own", "own"), Kind::kNumber},
       {"median step", Kind::kNumber}});
  for (size_t i = begin; i < end; ++i) {
    const RankTime& rank = report.lost.ranks[i];
    const TimeParts parts(rank);
    std::vector<std::string> cells = {
        WithCommas(rank.rank), NameCell(rank.host), WithCommas(rank.times_last),
        Escaped(SaySeconds(rank.late)),
        StackedBar(absl::StrCat("rank ", rank.rank, ": ", parts.InWords()),
                   parts.AsBar())};
    for (const BarPart& part : parts.AsBar()) {
      cells.push_back(Escaped(SayShare(ShareOf(part.value, parts.whole()))));
    }
    cells.push_back(Escaped(SaySeconds(rank.median_step)));
    table.AddRow(cells);
  }
  return table.Html();
}

std::string RankTables(const RunReport& report) {
  constexpr size_t kAtOnce = 16;
  const size_t count = report.lost.ranks.size();
  const size_t shown = std::min(count, kMostRows);
  const size_t at_once = shown <= kAtOnce + 4 ? shown : kAtOnce;
  std::string html = RankTable(report, 0, at_once);
  if (shown > at_once) {
    absl::StrAppend(&html, "<details><summary>",
                    WithCommas(static_cast<int64_t>(shown - at_once)),
                    " more ranks</summary>", RankTable(report, at_once, shown),
                    "</details>\n");
  }
  if (count > shown) {
    absl::StrAppend(&html, "<p class=\"note\">",
                    Counted(static_cast<int64_t>(count - shown), "more rank is",
                            "more ranks are"),
                    " left out here. <code>lockstep report PATH "
                    "--format=csv</code> prints all.</p>\n");
  }
  return html;
}

std::string TimeSection(const RunReport& report) {
  const TimeParts parts(report.lost.ranks);
  const bool is_known = parts.whole() > 0;
  std::string html = BeginSection(
      "Where the time went",
      is_known ? "The time of all ranks together. The first three parts are "
                 "lost: in them a rank waits, and does not compute."
               : "");
  if (!is_known) {
    return html +
           "<p>No steps of this run can be compared, so it is not known "
           "where the time went.</p>\n</section>\n";
  }
  html += BarOfParts(parts, "The time of all ranks");
  return html + RankTables(report) + "</section>\n";
}

std::string WorstSection(const RunReport& report) {
  using Kind = HtmlTable::Kind;
  std::string html = BeginSection("Slowest steps", "");
  if (report.lost.worst.empty()) {
    return html + "<p>No step stands out.</p>\n</section>\n";
  }
  HtmlTable table(
      "The steps that have lost most, the worst first. The longest is the time "
      "of the rank that took longest, with the time before the step.",
      {{"step", Kind::kNumber},
       {"lost by all ranks", Kind::kNumber},
       {"longest", Kind::kNumber},
       {"the rank that came last", Kind::kNumber}});
  for (const LostStep& step : report.lost.worst) {
    table.AddRow({WithCommas(step.step), Escaped(SaySeconds(step.lost)),
                  Escaped(SaySeconds(step.longest)),
                  step.last < 0 ? "none" : WithCommas(step.last)});
  }
  return absl::StrCat(html, table.Html(), "</section>\n");
}

// ---- Tables.

std::string SlowestSection(const RunReport& report) {
  using Kind = HtmlTable::Kind;
  std::string html = BeginSection("Slowest samples", "");
  if (report.slowest.empty()) {
    return html + "<p>The records name no slow samples.</p>\n</section>\n";
  }
  HtmlTable table("The samples that took longest to read, the slowest first",
                  {{"sample", Kind::kNumber},
                   {"time", Kind::kNumber},
                   {"timed together", Kind::kNumber},
                   {"rank", Kind::kNumber},
                   {"loader"}});
  for (const SlowSampleRow& row : report.slowest) {
    table.AddRow({WithCommas(row.sample.index),
                  Escaped(SaySeconds(row.sample.seconds)),
                  WithCommas(row.sample.timed_together), WithCommas(row.rank),
                  NameCell(row.loader)});
  }
  return absl::StrCat(html, table.Html(),
                      "<p class=\"note\">Where several samples were timed "
                      "together, the time is their mean, and the index is that "
                      "of the first.</p>\n</section>\n");
}

std::string OperationsSection(const RunReport& report) {
  using Kind = HtmlTable::Kind;
  std::string html = BeginSection(
      "Latencies by operation",
      report.operations.empty()
          ? ""
          : "A time runs from the issue of an operation to its end, so it "
            "includes waits for other ranks. The operation whose count times "
            "its median is largest comes first.");
  if (report.operations.empty()) {
    return html + "<p>The records have no operations.</p>\n</section>\n";
  }
  const bool are_of_some =
      report.operations_until > 0 && report.operations_until < report.last_step;
  HtmlTable table(are_of_some
                      ? absl::StrCat("Operations of all ranks, of the steps up "
                                     "to ",
                                     WithCommas(report.operations_until))
                      : "Operations of all ranks and steps",
                  {{"operation"},
                   {"bucket", Kind::kNumber},
                   {"group"},
                   {"type"},
                   {"elements", Kind::kNumber},
                   {"count", Kind::kNumber},
                   {"median", Kind::kNumber},
                   {"99th percentile", Kind::kNumber},
                   {"slowest rank", Kind::kNumber},
                   {"its 99th percentile", Kind::kNumber}});
  for (size_t i = 0; i < std::min(report.operations.size(), kMostRows); ++i) {
    const OperationRow& row = report.operations[i];
    table.AddRow(
        {NameCell(row.times.operation),
         row.times.bucket < 0 ? "" : WithCommas(row.times.bucket),
         NameCell(row.times.group), NameCell(row.times.dtype),
         WithCommas(row.times.count), WithCommas(row.times.took.count()),
         Escaped(SaySeconds(row.p50)), Escaped(SaySeconds(row.p99)),
         WithCommas(row.slowest_rank), Escaped(SaySeconds(row.slowest_p99))});
  }
  html += table.Html();
  if (report.operations.size() > kMostRows) {
    absl::StrAppend(
        &html, "<p class=\"note\">",
        Counted(static_cast<int64_t>(report.operations.size() - kMostRows),
                "more is", "more are"),
        " left out.</p>\n");
  }
  return html + "</section>\n";
}

std::string CurvesSection(const RunReport& report) {
  if (report.curves.empty()) {
    return BeginSection("Loss and other metrics", "") +
           "<p>No metrics were found. Give the job the sink "
           "<code>json_lines</code> under <code>[metrics]</code>, and say "
           "where its files are: <code>lockstep report PATH "
           "--metrics=PATH</code>.</p>\n</section>\n";
  }
  std::string html = BeginSection(
      "Loss and other metrics",
      report.curves_from.empty()
          ? ""
          : absl::StrCat("The values are of <code>",
                         Escaped(report.curves_from, kMostOfMessage),
                         "</code>."));
  html += "<div class=\"curves\">\n";
  size_t shown = 0;
  int64_t left_out = 0;
  for (const Curve& curve : report.curves) {
    if (!HasValues(curve)) continue;
    if (shown == kMostCurves) {
      ++left_out;
      continue;
    }
    html += CurveFigure(curve, nullptr);
    ++shown;
  }
  html += "</div>\n";
  if (left_out > 0) {
    absl::StrAppend(&html, "<p class=\"note\">",
                    Counted(left_out, "more is", "more are"),
                    " left out.</p>\n");
  }
  return html + "</section>\n";
}

// ---- Texts.

std::string HelpSection() {
  return absl::StrCat(
      BeginSection("How to read this", ""),
      "<p class=\"advice\">A rank loses the time in which it waits for data, "
      "and in which it is blocked in collectives: there it waits for the last "
      "rank (\u201cwaits for other ranks\u201d), and then for the transfer "
      "itself. The rank that comes last waits least, so the waits tell who was "
      "late, and no clocks have to be compared.</p>\n"
      "<p class=\"advice\">The first step does not count, since the processes "
      "are warming up in it, and neither does a step that some rank lacks. "
      "What "
      "is said of pictures leaves the first column out if that step is in it. "
      "A "
      "run that loses less than ",
      Escaped(SayShare(kHealthyShare)),
      " of its time is healthy, and one that loses more than ",
      Escaped(SayShare(kSevereShare)),
      " needs help. A cause is named if it explains at least ",
      Escaped(SayShare(kExplainedShare)), " of the lost time.</p>\n",
      "</section>\n");
}

std::string JobSection(const RunReport& report) {
  std::string html = BeginSection("The job", "");
  if (report.job.empty()) {
    return html + "<p>The records do not have its text.</p>\n</section>\n";
  }
  return absl::StrCat(html, "<details><summary>The text of the job</summary>",
                      "<pre class=\"job\">", Escaped(report.job, kMostOfJob),
                      "</pre></details>\n</section>\n");
}

std::string Page(const RunReport& report) {
  return absl::StrCat(
      BeginPage(absl::StrCat("Lockstep report: run ", report.number, " of ",
                             report.path)),
      "<header>\n<h1>Lockstep report <span class=\"path\">",
      Escaped(report.path), "</span></h1>\n", AboutRun(report), "</header>\n",
      VerdictBlock(report, Advice::kShown), KeyNumbers(report), Notes(report),
      TimeSection(report), WorstSection(report), MapSection(report),
      StepsSection(report), SlowestSection(report), OperationsSection(report),
      CurvesSection(report), HelpSection(), JobSection(report), EndPage());
}

}  // namespace
}  // namespace lockstep::internal_report

namespace lockstep {

void PrintPage(const RunReport& report, std::ostream& out) {
  out << internal_report::Page(report);
}

}  // namespace lockstep
