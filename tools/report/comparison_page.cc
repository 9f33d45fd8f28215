// The page of two runs side by side.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/metrics/records.h"
#include "lockstep/tools/report/line_diff.h"
#include "lockstep/tools/report/lost_time.h"
#include "lockstep/tools/report/page_parts.h"
#include "lockstep/tools/report/page_text.h"
#include "lockstep/tools/report/report_page.h"
#include "lockstep/tools/report/run_report.h"
#include "lockstep/tools/report/svg.h"

namespace lockstep::internal_report {
namespace {

constexpr size_t kMostRows = 64;  // of a table
constexpr size_t kMostCurves = 24;
constexpr size_t kMostLines = 400;  // of the job's texts

using Kind = HtmlTable::Kind;

// Ratios within this of 1, and shares within half of it of each other, are
// about the same: runs differ by so much for no reason.
constexpr double kSame = 0.02;

// ---- Two numbers.

enum class Better { kLess, kMore, kNeither };

// A number of both runs. One that is not known is not finite.
struct Pair {
  std::string name;
  double first = 0;
  double second = 0;
  Better better = Better::kNeither;
  bool is_share = false;

  bool is_known() const {
    return std::isfinite(first) && std::isfinite(second);
  }
  // Returns by how much the second one is better: less than 0 if it is worse,
  // and 0 if both are about the same or neither is better.
  double Gain() const;
  std::string SayChange() const;
  std::string Judge() const;
};

double Pair::Gain() const {
  if (!is_known() || better == Better::kNeither) return 0;
  double change = second - first;
  if (is_share) {
    if (std::abs(change) < kSame / 2) return 0;
  } else {
    if (!(first > 0)) return 0;
    change = second / first - 1;
    if (std::abs(change) < kSame) return 0;
  }
  return better == Better::kMore ? change : -change;
}

std::string Pair::SayChange() const {
  if (!is_known()) return "not known";
  if (is_share) {
    const double points = (second - first) * 100;
    if (!std::isfinite(points)) return "not known";
    if (std::abs(points) < 0.05) return "no change";
    return absl::StrCat(points > 0 ? "+" : "\u2212",
                        SayNumber(std::abs(points)), " points");
  }
  if (first == second) return "no change";
  if (!(first > 0) || !std::isfinite(second / first)) return "not known";
  return absl::StrCat(SayNumber(second / first), " times");
}

std::string Pair::Judge() const {
  if (!is_known()) return "not known";
  if (better == Better::kNeither) return "";
  const double gain = Gain();
  return gain > 0 ? "better" : gain < 0 ? "worse" : "about the same";
}

// ---- The head.

// Returns the value if it is above 0, else NaN.
double Known(double value) { return value > 0 ? value : std::nan(""); }

std::vector<Pair> KeyPairs(const RunReport& first, const RunReport& second) {
  const auto lost = [](const RunReport& report) {
    return report.lost.steps > 0 ? report.lost.verdict.lost_share
                                 : std::nan("");
  };
  std::vector<Pair> pairs = {
      {"rows per second", Known(first.rows_per_second),
       Known(second.rows_per_second), Better::kMore, false},
      {"median step", Known(first.median_step), Known(second.median_step),
       Better::kLess, false},
      {"99th percentile of steps", Known(first.p99_step),
       Known(second.p99_step), Better::kLess, false},
      {"lost time", lost(first), lost(second), Better::kLess, true}};
  const TimeParts of_first(first.lost.ranks);
  const TimeParts of_second(second.lost.ranks);
  const std::vector<BarPart> parts = of_first.AsBar();
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_own = i + 1 == parts.size();
    pairs.push_back({parts[i].name, ShareOf(parts[i].value, of_first.whole()),
                     ShareOf(of_second.AsBar()[i].value, of_second.whole()),
                     is_own ? Better::kMore : Better::kLess, true});
  }
  return pairs;
}

// Returns the names of pairs whose second number is better, or worse.
std::string NamesOf(const std::vector<Pair>& pairs, bool are_better) {
  std::vector<std::string> names;
  for (const Pair& pair : pairs) {
    const double gain = pair.Gain();
    if (are_better ? gain > 0 : gain < 0) names.push_back(pair.name);
  }
  return absl::StrJoin(names, ", ");
}

// Returns in a sentence which run is faster.
std::string SayFaster(const Pair& rows) {
  if (!std::isfinite(rows.second / rows.first)) {
    return "It is not known which run is faster.";
  }
  const double gain = rows.Gain();
  if (gain == 0) return "Both runs are about equally fast.";
  return absl::StrCat("The second run is ", gain > 0 ? "faster" : "slower",
                      ": it has ", SayNumber(rows.second / rows.first),
                      " times the rows per second.");
}

std::string SummaryBlock(const RunReport& first, const RunReport& second,
                         const std::vector<Pair>& pairs) {
  const double gain = pairs[0].Gain();
  const auto has_failed = [](const RunReport& report) {
    return report.end.has_value() && report.end->has_failed;
  };
  std::string html = absl::StrCat("<div class=\"verdict ",
                                  gain > 0   ? "good"
                                  : gain < 0 ? "warn"
                                             : "plain",
                                  "\">\n<p class=\"sentence\">",
                                  Escaped(SayFaster(pairs[0])), "</p>\n");
  for (const bool is_second : {false, true}) {
    if (has_failed(is_second ? second : first)) {
      absl::StrAppend(&html, "<p class=\"advice\"><strong>The ",
                      is_second ? "second" : "first",
                      " run has failed.</strong></p>\n");
    }
  }
  const std::string better = NamesOf(pairs, true);
  const std::string worse = NamesOf(pairs, false);
  absl::StrAppend(&html,
                  "<p class=\"advice\"><strong>Better in the second "
                  "run:</strong> ",
                  better.empty() ? "nothing" : better,
                  ".<br><strong>Worse:</strong> ",
                  worse.empty() ? "nothing" : worse, ".</p>\n");
  if (first.size != second.size) {
    absl::StrAppend(&html, "<p class=\"advice\">The runs have ",
                    SayCount(first.size), " and ",
                    SayCounted(second.size, "rank", "ranks"),
                    ", so their rows per second and the times of their steps "
                    "need not be alike.</p>\n");
  }
  return html + "</div>\n";
}

std::string RunBlock(const RunReport& report, absl::string_view title) {
  return absl::StrCat("<div>\n<h2>", title, "</h2>\n<p>", Escaped(report.path),
                      "</p>\n<p class=\"about\">", Escaped(SayRun(report)),
                      "</p>\n", VerdictBlock(report), Notes(report),
                      "</div>\n");
}

// ---- Sections.

std::string NumbersSection(const RunReport& first, const RunReport& second,
                           const std::vector<Pair>& pairs) {
  HtmlTable table("The first run, the second one, and how they differ",
                  {{""},
                   {"first", Kind::kNumber},
                   {"second", Kind::kNumber},
                   {"change", Kind::kNumber},
                   {"the second is"}});
  for (const Pair& pair : pairs) {
    const auto say = [&pair](double value) {
      if (pair.is_share) return Escaped(SayShare(value));
      return Escaped(pair.better == Better::kMore ? SayNumber(value)
                                                  : SaySeconds(value));
    };
    table.AddRow({NameCell(pair.name), say(pair.first), say(pair.second),
                  pair.SayChange(), NameCell(pair.Judge())});
  }
  const auto count = [&table](absl::string_view name, int64_t of_first,
                              int64_t of_second) {
    table.AddRow({NameCell(name), SayCount(of_first), SayCount(of_second),
                  of_first == of_second ? "no change" : "differs", ""});
  };
  count("ranks", first.size, second.size);
  count("steps that count", first.lost.steps, second.lost.steps);
  std::string html = BeginSection("Key numbers", "");
  for (const bool is_second : {false, true}) {
    const TimeParts parts((is_second ? second : first).lost.ranks);
    if (!(parts.whole() > 0)) continue;
    const char* const name = is_second ? "second run" : "first run";
    absl::StrAppend(&html, "<figure><figcaption><h3>Where the time of the ",
                    name, " went</h3></figcaption>\n",
                    BarOfParts(parts, absl::StrCat("The time of the ", name)),
                    "</figure>\n");
  }
  return html + table.Html() + "</section>\n";
}

bool IsSame(const OperationTimes& first, const OperationTimes& second) {
  const auto key = [](const OperationTimes& times) {
    return std::tie(times.group, times.operation, times.dtype, times.count,
                    times.bucket);
  };
  return key(first) == key(second);
}

std::string OperationsSection(const RunReport& first, const RunReport& second) {
  HtmlTable table("Operations that both runs have",
                  {{"operation"},
                   {"group"},
                   {"type"},
                   {"elements", Kind::kNumber},
                   {"median, first", Kind::kNumber},
                   {"second", Kind::kNumber},
                   {"99th percentile, first", Kind::kNumber},
                   {"second", Kind::kNumber},
                   {"change", Kind::kNumber},
                   {"the second is"}});
  size_t rows = 0;
  size_t left_out = 0;
  for (const OperationRow& row : first.operations) {
    const auto other = std::find_if(
        second.operations.begin(), second.operations.end(),
        [&row](const auto& each) { return IsSame(each.times, row.times); });
    if (other == second.operations.end()) continue;
    if (rows == kMostRows) {
      ++left_out;
      continue;
    }
    ++rows;
    const Pair p99 = {"", row.p99, other->p99, Better::kLess, false};
    table.AddRow({NameCell(NameOfOperation(row.times)),
                  NameCell(row.times.group), NameCell(row.times.dtype),
                  SayCount(row.times.count), Escaped(SaySeconds(row.p50)),
                  Escaped(SaySeconds(other->p50)), Escaped(SaySeconds(row.p99)),
                  Escaped(SaySeconds(other->p99)), p99.SayChange(),
                  NameCell(p99.Judge())});
  }
  std::string html = BeginSection(
      "Latencies by operation",
      rows == 0 ? ""
                : "The change, and what is better, are of the 99th "
                  "percentile.");
  if (rows == 0) return html + "<p>The runs share none.</p>\n</section>\n";
  html += table.Html();
  if (left_out > 0) {
    absl::StrAppend(&html, "<p class=\"note\">", left_out,
                    " more are left out.</p>\n");
  }
  return html + "</section>\n";
}

std::string CurvesSection(const RunReport& first, const RunReport& second) {
  std::string html = BeginSection("Loss and other metrics", "");
  std::string figures;
  size_t shown = 0;
  for (const Curve& curve : first.curves) {
    if (shown == kMostCurves) break;
    const auto other =
        std::find_if(second.curves.begin(), second.curves.end(),
                     [&curve](const Curve& each) {
                       return each.name == curve.name && !each.points.empty();
                     });
    if (curve.points.empty() || other == second.curves.end()) continue;
    figures += CurveFigure(curve, &*other);
    ++shown;
  }
  if (shown == 0) {
    return html +
           "<p>There is no metric of which both runs have values. "
           "<code>lockstep report</code> takes their files by "
           "<code>--metrics=PATH</code>.</p>\n</section>\n";
  }
  return absl::StrCat(
      html,
      Key({{"stroke first", "first run"}, {"stroke dashed two", "second run"}}),
      "<div class=\"curves\">\n", figures, "</div>\n", "</section>\n");
}

std::string JobsSection(const RunReport& first, const RunReport& second) {
  std::string html = BeginSection("The jobs", "");
  const std::vector<LineChange> changes =
      DifferentLines(absl::string_view(first.job).substr(0, kMostOfJob),
                     absl::string_view(second.job).substr(0, kMostOfJob));
  if (changes.empty()) {
    return html +
           (first.job.empty() ? "<p>The records do not have their texts.</p>\n"
                              : "<p>Both have the same text.</p>\n") +
           "</section>\n";
  }
  html +=
      "<p class=\"lead\">These lines differ: \u2212 is only in the first run, "
      "and + only in the second.</p>\n<ul class=\"changes\">\n";
  for (size_t i = 0; i < std::min(changes.size(), kMostLines); ++i) {
    const LineChange& change = changes[i];
    absl::StrAppend(&html, "<li class=\"", change.is_of_second ? "new" : "gone",
                    "\"><code>", change.is_of_second ? "+" : "\u2212", " ",
                    Escaped(change.line, kMostOfMessage), "</code></li>\n");
  }
  html += "</ul>\n";
  if (changes.size() > kMostLines) {
    absl::StrAppend(&html, "<p class=\"note\">", changes.size() - kMostLines,
                    " more are left out.</p>\n");
  }
  return html + "</section>\n";
}

std::string Comparison(const RunReport& first, const RunReport& second) {
  const std::vector<Pair> pairs = KeyPairs(first, second);
  return absl::StrCat(
      BeginPage("Lockstep report: two runs"),
      "<header>\n<h1>Lockstep report: two runs</h1>\n</header>\n",
      SummaryBlock(first, second, pairs), "<section class=\"pair\">\n",
      RunBlock(first, "First run"), RunBlock(second, "Second run"),
      "</section>\n", NumbersSection(first, second, pairs),
      OperationsSection(first, second), CurvesSection(first, second),
      JobsSection(first, second), EndPage());
}

}  // namespace
}  // namespace lockstep::internal_report

namespace lockstep {

void PrintComparison(const RunReport& first, const RunReport& second,
                     std::ostream& out) {
  out << internal_report::Comparison(first, second);
}

}  // namespace lockstep
