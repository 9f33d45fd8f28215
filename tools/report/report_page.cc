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
#include "lockstep/tools/report/svg.h"

namespace lockstep::internal_report {
namespace {

constexpr size_t kMostRows = 64;      // of a table
constexpr size_t kMostMapRows = 128;  // of a map
constexpr size_t kMostCurves = 24;
constexpr int kTicks = 4;

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
                               SayCounted(report.lost.steps, "step", "steps"),
                               ". The one for which others waited longest "
                               "comes first."),
      {{"rank", Kind::kNumber},
       {"host"},
       {"times last", Kind::kNumber},
       {"others waited", Kind::kNumber},
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
        SayCount(rank.rank), NameCell(rank.host), SayCount(rank.times_last),
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
                    SayCount(static_cast<int64_t>(shown - at_once)),
                    " more ranks</summary>", RankTable(report, at_once, shown),
                    "</details>\n");
  }
  if (count > shown) {
    absl::StrAppend(&html, "<p class=\"note\">",
                    SayCounted(static_cast<int64_t>(count - shown),
                               "more rank is", "more ranks are"),
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

// ---- Maps.

// Returns ticks at round steps. Bins have the same width, whatever steps are in
// them.
std::vector<Tick> BinTicks(const std::vector<StepBin>& bins) {
  std::vector<Tick> ticks;
  if (bins.empty()) return ticks;
  const auto count = static_cast<double>(bins.size());
  size_t bin = 0;
  for (const double step :
       RoundNumbers(static_cast<double>(bins.front().first_step),
                    static_cast<double>(bins.back().last_step), kTicks)) {
    while (bin < bins.size() &&
           static_cast<double>(bins[bin].last_step) < step) {
      ++bin;
    }
    if (bin == bins.size()) break;
    const auto first = static_cast<double>(bins[bin].first_step);
    const auto last = static_cast<double>(bins[bin].last_step);
    if (step < first) continue;
    const double within = (step - first + 0.5) / (last - first + 1);
    ticks.push_back({(static_cast<double>(bin) + within) / count,
                     std::abs(step) < 1e15 ? SayCount(std::llround(step))
                                           : SayNumber(step)});
  }
  return ticks;
}

// Returns the places of the rows of a map, not all of which may be shown.
std::vector<size_t> ShownRows(size_t rows) {
  std::vector<size_t> shown;
  const size_t stride = (rows + kMostMapRows - 1) / kMostMapRows;
  for (size_t i = 0; i < rows; i += stride) shown.push_back(i);
  return shown;
}

std::vector<Tick> RankTicks(const std::vector<MapRow>& map,
                            const std::vector<size_t>& shown) {
  constexpr size_t kAll = 16;
  std::vector<Tick> ticks;
  const auto count = static_cast<double>(shown.size());
  const size_t stride = shown.size() <= kAll ? 1 : (shown.size() + 7) / 8;
  for (size_t i = 0; i < shown.size(); i += stride) {
    ticks.push_back(
        {(static_cast<double>(i) + 0.5) / count, SayCount(map[shown[i]].rank)});
  }
  return ticks;
}

// The values of the cells of a map that are known.
struct CellSummary {
  int64_t known = 0;
  int64_t unknown = 0;
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  int64_t rank_of_most = 0;
  size_t bin_of_most = 0;
};

using Values = std::function<double(const MapRow& row, size_t bin)>;

CellSummary Summarize(const RunReport& report, const Values& values) {
  CellSummary summary;
  for (const MapRow& row : report.map) {
    for (size_t bin = 0; bin < report.bins.size(); ++bin) {
      const double value = values(row, bin);
      if (!std::isfinite(value)) {
        ++summary.unknown;
        continue;
      }
      ++summary.known;
      summary.least = std::min(summary.least, value);
      if (value <= summary.most) continue;
      summary.most = value;
      summary.rank_of_most = row.rank;
      summary.bin_of_most = bin;
    }
  }
  return summary;
}

// Returns the value of a cell, or NaN if there is none.
double CellOf(const std::vector<float>& values, size_t bin) {
  return bin < values.size() ? double{values[bin]}
                             : std::numeric_limits<double>::quiet_NaN();
}

// One of the maps, and the values that it shows.
struct MapKind {
  absl::string_view title;
  absl::string_view style;
  Values values;
  std::string (*say)(double value) = nullptr;
  std::vector<double> ends;  // of the classes but the last one
  absl::string_view what;    // the start of its alternative text
};

int ClassOf(const MapKind& kind, double value) {
  if (!std::isfinite(value)) return -1;
  int of_value = 0;
  while (of_value < static_cast<int>(kind.ends.size()) &&
         value > kind.ends[of_value]) {
    ++of_value;
  }
  return of_value;
}

// Returns "7" or "from 7 to 9".
std::string SayRange(double least, double most, std::string (*say)(double)) {
  return least < most ? absl::StrCat("from ", say(least), " to ", say(most))
                      : say(least);
}

std::string MapFigure(const RunReport& report, const MapKind& kind,
                      const CellSummary& summary) {
  const std::vector<size_t> shown = ShownRows(report.map.size());
  CellMap map;
  map.rows = shown.size();
  map.columns = report.bins.size();
  map.row_ticks = RankTicks(report.map, shown);
  map.column_ticks = BinTicks(report.bins);
  map.style = kind.style;
  map.class_of = [&](size_t row, size_t bin) {
    return ClassOf(kind, kind.values(report.map[shown[row]], bin));
  };
  std::string words = absl::StrCat(
      kind.what, " of ",
      SayCounted(static_cast<int64_t>(report.map.size()), "rank", "ranks"),
      " in ",
      SaySteps(report.bins.front().first_step, report.bins.back().last_step),
      ": ");
  if (summary.known == 0) {
    words += "nothing is known";
  } else {
    absl::StrAppend(&words, SayRange(summary.least, summary.most, kind.say));
    const StepBin& bin = report.bins[summary.bin_of_most];
    if (summary.least < summary.most) {
      absl::StrAppend(&words, "; rank ", summary.rank_of_most,
                      " has the most, in ",
                      SaySteps(bin.first_step, bin.last_step));
    }
  }
  if (summary.unknown > 0) {
    absl::StrAppend(&words, "; ",
                    SayCounted(summary.unknown, "cell has", "cells have"),
                    " no record");
  }
  std::vector<KeyEntry> entries;
  for (size_t i = 0; i <= kind.ends.size() && summary.known > 0; ++i) {
    const std::string style = absl::StrCat("c", i);
    const bool is_last = i == kind.ends.size();
    entries.push_back(
        {style, is_last
                    ? absl::StrCat("over ", Escaped(kind.say(kind.ends[i - 1])))
                    : absl::StrCat("up to ", Escaped(kind.say(kind.ends[i])))});
  }
  entries.push_back({"hatch", "no record"});
  return absl::StrCat("<figure><figcaption><h3>", kind.title, "</h3>",
                      Key(entries, kind.style), "</figcaption>\n",
                      map.Svg(words), "<p class=\"note\">", Escaped(words),
                      ".</p></figure>\n");
}

std::string MapSection(const RunReport& report) {
  const bool is_empty = report.map.empty() || report.bins.empty();
  std::string html = BeginSection(
      "Samples over ranks and steps",
      is_empty ? "" : "Each line is a rank, and each column some steps.");
  if (is_empty) {
    return html + "<p>There are no steps to show.</p>\n</section>\n";
  }
  MapKind rows;
  rows.title = "Samples of a step";
  rows.style = "rows";
  rows.values = [](const MapRow& row, size_t bin) {
    return CellOf(row.rows, bin);
  };
  rows.say = SayNumber;
  rows.what = "The mean samples of a step";
  const CellSummary of_rows = Summarize(report, rows.values);
  for (const double part : {0.2, 0.4, 0.6, 0.8}) {
    rows.ends.push_back(part * Amount(of_rows.most));
  }
  html += MapFigure(report, rows, of_rows);

  MapKind lost;
  lost.title = "Lost time: the part of its time that a rank waited";
  lost.style = "lost";
  lost.values = [](const MapRow& row, size_t bin) {
    return CellOf(row.lost_share, bin);
  };
  lost.say = SayShare;
  lost.what = "The share of lost time";
  lost.ends = {0.1, 0.2, 0.4, 0.6};
  html += MapFigure(report, lost, Summarize(report, lost.values));
  const auto rows_there = static_cast<int64_t>(report.map.size());
  const int64_t all = std::max(rows_there, report.size);
  const auto shown = static_cast<int64_t>(ShownRows(report.map.size()).size());
  if (shown < all) {
    absl::StrAppend(&html, "<p class=\"note\">The maps show ", SayCount(shown),
                    " of ", SayCounted(all, "rank", "ranks"), ".</p>\n");
  }
  return html + "</section>\n";
}

// ---- Over the steps.

using BinValue = double StepBin::*;

// The values of bins for a chart. Each bin has a place at its middle; the first
// and the last one also reach the ends of the axis.
struct BinValues {
  explicit BinValues(const std::vector<StepBin>& bins) : bins(bins) {
    const auto count = static_cast<double>(bins.size());
    places.push_back(0);
    for (size_t i = 0; i < bins.size(); ++i) {
      places.push_back((static_cast<double>(i) + 0.5) / count);
    }
    places.push_back(1);
  }

  // Requires: there is a bin.
  std::vector<double> Of(BinValue value) const {
    std::vector<double> values = {bins.front().*value};
    for (const StepBin& bin : bins) values.push_back(bin.*value);
    values.push_back(bins.back().*value);
    return values;
  }

  const std::vector<StepBin>& bins;
  std::vector<double> places;
};

// Returns the values that are finite, in their order by size.
std::vector<double> Sorted(std::vector<double> values) {
  values.erase(
      std::remove_if(values.begin(), values.end(),
                     [](double value) { return !std::isfinite(value); }),
      values.end());
  std::sort(values.begin(), values.end());
  return values;
}

std::string QueueFigure(const RunReport& report) {
  std::string html =
      "<figure><figcaption><h3>Batches that were ready at the end of a "
      "step</h3>";
  html +=
      Key({{"band", "least to most of all ranks"}, {"stroke mean", "mean"}});
  html += "</figcaption>\n";
  const BinValues values(report.bins);
  const auto least = values.Of(&StepBin::least_ready);
  const auto mean = values.Of(&StepBin::mean_ready);
  const auto most = values.Of(&StepBin::most_ready);
  const auto sorted_least = Sorted(least);
  const auto sorted_mean = Sorted(mean);
  const auto sorted_most = Sorted(most);
  if (sorted_least.empty() || sorted_mean.empty() || sorted_most.empty()) {
    return html +
           "<p>The records do not say how many batches were ready.</p>"
           "</figure>\n";
  }
  LineChart chart(BinTicks(report.bins),
                  NumberAxis(std::min(0.0, sorted_least.front()),
                             std::max(1.0, sorted_most.back()), 3),
                  120);
  chart.AddArea("band", values.places, least, most);
  chart.AddLine("mean", values.places, mean);
  const std::string words = absl::StrCat(
      "Ready batches: ",
      SayRange(sorted_least.front(), sorted_most.back(), SayNumber),
      "; the mean of a step is ",
      SayRange(sorted_mean.front(), sorted_mean.back(), SayNumber));
  return absl::StrCat(html, chart.Svg(words), "<p class=\"note\">",
                      Escaped(words),
                      ". Where there are none, the loader is too slow."
                      "</p></figure>\n");
}

std::string SecondsFigure(const RunReport& report) {
  const BinValues values(report.bins);
  const struct {
    BinValue value;
    absl::string_view style, name;
  } parts[] = {{&StepBin::own, "own", "own computation"},
               {&StepBin::between, "between", "between steps"},
               {&StepBin::blocked, "others", "blocked in collectives"},
               {&StepBin::for_data, "data", "waits for data"}};
  std::vector<KeyEntry> entries;
  std::vector<std::vector<double>> tops = {
      std::vector<double>(values.places.size(), 0)};
  for (const auto& part : parts) {
    entries.insert(entries.begin(),
                   {std::string(part.style), std::string(part.name)});
    std::vector<double> top = values.Of(part.value);
    for (size_t i = 0; i < top.size(); ++i) {
      top[i] = std::isfinite(top[i]) ? tops.back()[i] + Amount(top[i])
                                     : std::numeric_limits<double>::quiet_NaN();
    }
    tops.push_back(std::move(top));
  }
  entries.push_back({"stroke slowest", "slowest step of any rank"});
  const std::vector<double> slowest = values.Of(&StepBin::slowest);
  const std::vector<double> sorted = Sorted(slowest);
  const std::vector<double> whole = Sorted(tops.back());
  std::string html = absl::StrCat(
      "<figure><figcaption><h3>Seconds of a step, as a mean of all ranks</h3>",
      Key(entries), "</figcaption>\n");
  if (whole.empty()) {
    return html + "<p>The records have no times of steps.</p></figure>\n";
  }
  // A few very slow steps would flatten all others.
  double most = whole.back();
  if (!sorted.empty()) {
    const size_t nearly_all = (sorted.size() - 1) * 95 / 100;
    most = std::max(most, std::min(sorted.back(),
                                   std::max(sorted[nearly_all], most) * 1.5));
  }
  const Axis axis = SecondsAxis(0, most, 4);
  LineChart chart(BinTicks(report.bins), axis, 220);
  for (size_t i = 0; i < std::size(parts); ++i) {
    chart.AddArea(parts[i].style, values.places, tops[i], tops[i + 1]);
  }
  chart.AddLine("slowest", values.places, slowest);
  std::string words =
      absl::StrCat("The mean time of a step is ",
                   SayRange(whole.front(), whole.back(), SaySeconds));
  if (!sorted.empty()) {
    absl::StrAppend(&words, "; the slowest step takes ",
                    SaySeconds(sorted.back()));
  }
  absl::StrAppend(&html, chart.Svg(words), "<p class=\"note\">", Escaped(words),
                  ".");
  if (!sorted.empty() && sorted.back() > axis.most) {
    html +=
        " The line of the slowest ends at the top where it leaves the "
        "picture.";
  }
  return html + "</p></figure>\n";
}

std::string StepsSection(const RunReport& report) {
  std::string html = BeginSection("Over the steps", "");
  if (report.bins.empty()) {
    return html + "<p>There are no steps to show.</p>\n</section>\n";
  }
  return html + QueueFigure(report) + SecondsFigure(report) + "</section>\n";
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
  for (size_t i = 0; i < std::min(report.slowest.size(), kMostRows); ++i) {
    const SlowSampleRow& row = report.slowest[i];
    table.AddRow({SayCount(row.sample.index),
                  Escaped(SaySeconds(row.sample.seconds)),
                  SayCount(row.sample.timed_together), SayCount(row.rank),
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
          : "A time is from the issue of an operation to its end, so with the "
            "waits for other ranks. The operation that took most time comes "
            "first.");
  if (report.operations.empty()) {
    return html + "<p>The records have no operations.</p>\n</section>\n";
  }
  HtmlTable table("Operations of all ranks and steps",
                  {{"operation"},
                   {"bucket", Kind::kNumber},
                   {"group"},
                   {"type"},
                   {"elements", Kind::kNumber},
                   {"times", Kind::kNumber},
                   {"median", Kind::kNumber},
                   {"99th percentile", Kind::kNumber},
                   {"slowest rank", Kind::kNumber},
                   {"its 99th percentile", Kind::kNumber}});
  for (size_t i = 0; i < std::min(report.operations.size(), kMostRows); ++i) {
    const OperationRow& row = report.operations[i];
    table.AddRow({NameCell(row.times.operation),
                  row.times.bucket < 0 ? "" : SayCount(row.times.bucket),
                  NameCell(row.times.group), NameCell(row.times.dtype),
                  SayCount(row.times.count), SayCount(row.times.took.count()),
                  Escaped(SaySeconds(row.p50)), Escaped(SaySeconds(row.p99)),
                  SayCount(row.slowest_rank),
                  Escaped(SaySeconds(row.slowest_p99))});
  }
  html += table.Html();
  if (report.operations.size() > kMostRows) {
    absl::StrAppend(
        &html, "<p class=\"note\">",
        SayCount(static_cast<int64_t>(report.operations.size() - kMostRows)),
        " more are left out.</p>\n");
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
  for (const Curve& curve : report.curves) {
    if (shown == kMostCurves) break;
    if (curve.points.empty()) continue;
    html += CurveFigure(curve, nullptr);
    ++shown;
  }
  html += "</div>\n";
  if (report.curves.size() > kMostCurves) {
    absl::StrAppend(
        &html, "<p class=\"note\">",
        SayCount(static_cast<int64_t>(report.curves.size() - kMostCurves)),
        " more are left out.</p>\n");
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
      "are warming up in it, and neither does a step that some rank lacks. A "
      "run that loses at most ",
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
      Escaped(report.path), "</span></h1>\n<p class=\"about\">",
      Escaped(SayRun(report)), "</p>\n</header>\n", VerdictBlock(report),
      KeyNumbers(report), Notes(report), TimeSection(report),
      MapSection(report), StepsSection(report), SlowestSection(report),
      OperationsSection(report), CurvesSection(report), HelpSection(),
      JobSection(report), EndPage());
}

}  // namespace
}  // namespace lockstep::internal_report

namespace lockstep {

void PrintPage(const RunReport& report, std::ostream& out) {
  out << internal_report::Page(report);
}

}  // namespace lockstep
