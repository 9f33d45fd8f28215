// The page of two runs side by side.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
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
#include "lockstep/tools/words/words.h"

namespace lockstep::internal_report {
namespace {

constexpr size_t kMostRows = 64;  // of a table
constexpr size_t kMostCurves = 24;
constexpr size_t kMostLines = 400;  // of the job's texts

using Kind = HtmlTable::Kind;

// Numbers whose ratio is within this of 1 are about the same: runs differ by so
// much for no reason.
constexpr double kSame = 0.03;
// So are the parts of a step that differ by less than this share of a step.
constexpr double kSmallShare = 0.01;

// ---- Two numbers.

enum class Better { kLess, kMore };

// A number of both runs. One that is not known is not finite.
struct Pair {
  std::string name;
  double first = 0;
  double second = 0;
  Better better = Better::kLess;
  std::string (*say)(double value) = SaySeconds;
  double small = 0;  // a change of less than this does not matter

  bool is_known() const {
    return std::isfinite(first) && std::isfinite(second);
  }
  double change() const { return second - first; }
  // Returns true if both are about the same, or one is not known.
  bool is_same() const;
  // Returns 1 if the second one is better, -1 if it is worse, else 0.
  int Gain() const;
  // Returns "+26 us (+12 %)".
  std::string SayChange() const;
  std::string Judge() const;
};

bool Pair::is_same() const {
  return !is_known() || std::abs(change()) < small ||
         std::abs(change()) <= kSame * std::abs(first);
}

int Pair::Gain() const {
  if (is_same()) return 0;
  return (change() > 0) == (better == Better::kMore) ? 1 : -1;
}

std::string Pair::SayChange() const {
  // A change of less than this share is said to be none.
  constexpr double kNone = 0.0005;
  if (!is_known() || !std::isfinite(change())) return "not known";
  if (std::abs(change()) <= kNone * std::abs(first)) return "no change";
  const char* const sign = change() > 0 ? "+" : "\u2212";
  std::string text = absl::StrCat(sign, say(std::abs(change())));
  if (!(first > 0) || !std::isfinite(second / first)) return text;
  constexpr double kManyTimes = 10;
  return second / first < kManyTimes
             ? absl::StrCat(text, " (", sign,
                            SayShare(std::abs(change() / first)), ")")
             : absl::StrCat(text, " (", SayNumber(second / first), " times)");
}

std::string Pair::Judge() const {
  if (!is_known()) return "not known";
  const int gain = Gain();
  return gain > 0 ? "better" : gain < 0 ? "worse" : "about the same";
}

// ---- The head.

// Returns the value if it is above 0, else NaN.
double Known(double value) { return value > 0 ? value : std::nan(""); }

// The numbers of both runs that matter.
struct KeyPairs {
  Pair rows, median_step, p99_step;
  // The means of a step on a rank: of the whole step, and of its parts in the
  // order of TimeParts::AsBar.
  Pair step;
  std::vector<Pair> parts;

  KeyPairs(const RunReport& first, const RunReport& second);
  std::vector<Pair> All() const;
};

KeyPairs::KeyPairs(const RunReport& first, const RunReport& second) {
  rows = {"rows per second", Known(first.rows_per_second),
          Known(second.rows_per_second), Better::kMore, SayNumber};
  median_step = {"median step", Known(first.median_step),
                 Known(second.median_step)};
  p99_step = {"99th percentile of steps", Known(first.p99_step),
              Known(second.p99_step)};
  // Returns a time of all ranks and steps as that of a step on a rank.
  const auto mean = [](double seconds, const LostTime& lost) {
    const double count = static_cast<double>(lost.steps) *
                         static_cast<double>(lost.ranks.size());
    return count > 0 ? seconds / count : std::nan("");
  };
  const TimeParts of_first(first.lost.ranks);
  const TimeParts of_second(second.lost.ranks);
  step = {"mean step", mean(of_first.whole(), first.lost),
          mean(of_second.whole(), second.lost)};
  const std::vector<BarPart> bar = of_first.AsBar();
  const std::vector<BarPart> other = of_second.AsBar();
  for (size_t i = 0; i < bar.size(); ++i) {
    Pair& part = parts.emplace_back();
    part.name =
        bar[i].name == "between steps" ? "time between steps" : bar[i].name;
    part.first = mean(bar[i].value, first.lost);
    part.second = mean(other[i].value, second.lost);
    part.small = kSmallShare * Amount(step.first);
  }
}

std::vector<Pair> KeyPairs::All() const {
  std::vector<Pair> all = {rows, median_step, p99_step, step};
  all.insert(all.end(), parts.begin(), parts.end());
  return all;
}

// Returns the names of pairs whose second number is better (1) or worse (-1).
std::string NamesOf(const std::vector<Pair>& pairs, int gain) {
  std::vector<std::string> names;
  for (const Pair& pair : pairs) {
    if (pair.Gain() == gain) names.push_back(pair.name);
  }
  return names.empty() ? "nothing" : absl::StrJoin(names, ", ");
}

// Returns in a sentence which run is faster.
std::string SayFaster(const Pair& rows) {
  constexpr double kFar = 2;
  const double ratio = rows.second / rows.first;
  if (!std::isfinite(ratio)) return "It is not known which run is faster.";
  if (rows.is_same()) return "Both runs are about as fast.";
  const std::string how = ratio >= kFar || ratio <= 1 / kFar
                              ? absl::StrCat(SayNumber(ratio), " times as many")
                              : absl::StrCat(SayShare(std::abs(ratio - 1)),
                                             ratio > 1 ? " more" : " fewer");
  return absl::StrCat("The second run has ", how, " rows per second.");
}

// Returns a part of a step as the subject of a sentence, with its verb.
std::string SayPartIs(const std::string& name) {
  const bool are_many = absl::StartsWith(name, "waits") || name == "transfers";
  return absl::StrCat(name, are_many ? " are" : " is");
}

// Returns in a sentence why steps take longer, or less; "" if it is not known.
std::string SayWhy(const KeyPairs& pairs) {
  const Pair& step = pairs.step;
  if (!step.is_known() || !std::isfinite(step.change())) return "";
  if (step.is_same()) return "A step takes about as long in both runs.";
  const bool is_longer = step.change() > 0;
  const char* const how = is_longer ? " longer" : " less";
  const auto part = std::max_element(
      pairs.parts.begin(), pairs.parts.end(),
      [is_longer](const Pair& a, const Pair& b) {
        return is_longer ? a.change() < b.change() : b.change() < a.change();
      });
  const std::string whole =
      absl::StrCat("A step takes ", SaySeconds(std::abs(step.change())), how);
  const std::string of_part = SaySeconds(std::abs(part->change()));
  // Where other parts change the other way, a part may change by more than the
  // whole step.
  if (std::abs(part->change()) <= std::abs(step.change())) {
    return absl::StrCat(whole, ", of which ", SayPartIs(part->name), " ",
                        of_part, ".");
  }
  return absl::StrCat(whole, ": ", SayPartIs(part->name), " ", of_part,
                      is_longer ? " longer, and other parts are shorter."
                                : " shorter, and other parts are longer.");
}

std::string SummaryBlock(const RunReport& first, const RunReport& second,
                         const KeyPairs& pairs) {
  const int gain = pairs.rows.Gain();
  const auto has_failed = [](const RunReport& report) {
    return report.end.has_value() && report.end->has_failed;
  };
  std::string html = absl::StrCat("<div class=\"verdict ",
                                  gain > 0   ? "good"
                                  : gain < 0 ? "warn"
                                             : "plain",
                                  "\">\n<p class=\"sentence\">",
                                  Escaped(SayFaster(pairs.rows)), "</p>\n");
  const std::string why = SayWhy(pairs);
  if (!why.empty()) {
    absl::StrAppend(&html, "<p class=\"advice\">", Escaped(why), "</p>\n");
  }
  for (const bool is_second : {false, true}) {
    if (has_failed(is_second ? second : first)) {
      absl::StrAppend(&html, "<p class=\"advice\"><strong>The ",
                      is_second ? "second" : "first",
                      " run has failed.</strong></p>\n");
    }
  }
  const std::vector<Pair> all = pairs.All();
  absl::StrAppend(&html,
                  "<p class=\"advice\"><strong>Better in the second "
                  "run:</strong> ",
                  NamesOf(all, 1), ".<br><strong>Worse:</strong> ",
                  NamesOf(all, -1), ".</p>\n");
  if (first.size != second.size) {
    absl::StrAppend(&html, "<p class=\"advice\">The runs have ",
                    WithCommas(first.size), " and ",
                    Counted(second.size, "rank", "ranks"),
                    ", so their rows per second and the times of their steps "
                    "need not be alike.</p>\n");
  }
  return html + "</div>\n";
}

std::string RunBlock(const RunReport& report, absl::string_view title) {
  return absl::StrCat("<div>\n<h2>", title, "</h2>\n<p>", Escaped(report.path),
                      "</p>\n", AboutRun(report),
                      VerdictBlock(report, Advice::kLeftOut), Notes(report),
                      "</div>\n");
}

// ---- Sections.

std::string NumbersSection(const RunReport& first, const RunReport& second,
                           const KeyPairs& pairs) {
  HtmlTable table(
      "The first run, the second one, and how they differ. The mean "
      "step, which has the time before it, and its parts are means "
      "of all ranks and steps.",
      {{""},
       {"first", Kind::kNumber},
       {"second", Kind::kNumber},
       {"change", Kind::kNumber},
       {"the second is"}});
  for (const Pair& pair : pairs.All()) {
    table.AddRow({NameCell(pair.name), Escaped(pair.say(pair.first)),
                  Escaped(pair.say(pair.second)), Escaped(pair.SayChange()),
                  NameCell(pair.Judge())});
  }
  const auto count = [&table](absl::string_view name, int64_t of_first,
                              int64_t of_second) {
    table.AddRow({NameCell(name), WithCommas(of_first), WithCommas(of_second),
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
  int64_t left_out = 0;
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
    const Pair p99 = {"", row.p99, other->p99};
    table.AddRow({NameCell(NameOfOperation(row.times)),
                  NameCell(row.times.group), NameCell(row.times.dtype),
                  WithCommas(row.times.count), Escaped(SaySeconds(row.p50)),
                  Escaped(SaySeconds(other->p50)), Escaped(SaySeconds(row.p99)),
                  Escaped(SaySeconds(other->p99)), Escaped(p99.SayChange()),
                  NameCell(p99.Judge())});
  }
  std::string html = BeginSection(
      "Latencies by operation",
      rows == 0 ? ""
                : "The change, and what is better, are of the 99th "
                  "percentile.");
  if (rows == 0)
    return html + "<p>The runs have no operation in common.</p>\n</section>\n";
  html += table.Html();
  if (left_out > 0) {
    absl::StrAppend(&html, "<p class=\"note\">",
                    Counted(left_out, "more is", "more are"),
                    " left out.</p>\n");
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
                       return each.name == curve.name && HasValues(each);
                     });
    if (!HasValues(curve) || other == second.curves.end()) continue;
    figures += CurveFigure(curve, &*other);
    ++shown;
  }
  if (shown == 0) {
    return html +
           "<p>There is no metric of which both runs have values. "
           "<code>--metrics</code> names the metrics of the second run; those "
           "of the first are found where its job says.</p>\n</section>\n";
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
    absl::StrAppend(&html, "<p class=\"note\">",
                    Counted(static_cast<int64_t>(changes.size() - kMostLines),
                            "more is", "more are"),
                    " left out.</p>\n");
  }
  return html + "</section>\n";
}

std::string Comparison(const RunReport& first, const RunReport& second) {
  const KeyPairs pairs(first, second);
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
