#include "lockstep/tools/report/step_pictures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/tools/report/page_parts.h"
#include "lockstep/tools/report/page_text.h"
#include "lockstep/tools/report/run_report.h"
#include "lockstep/tools/report/svg.h"
#include "lockstep/tools/words/words.h"

namespace lockstep::internal_report {
namespace {

constexpr int kTicks = 4;

// ---- Bins of steps.

// Returns the first bin of which a caption may say that it is the worst. The
// processes are warming up in their first step, so that does not count.
size_t FirstBinThatCounts(const RunReport& report) {
  if (report.bins.size() < 2) return 0;
  const StepBin& first = report.bins.front();
  return first.first_step <= report.first_step &&
                 report.first_step <= first.last_step
             ? 1
             : 0;
}

// Returns the steps from a bin to the last one.
// Requires: there is that bin.
std::string SayStepsFrom(const RunReport& report, size_t bin) {
  return SaySteps(report.bins[bin].first_step, report.bins.back().last_step);
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
                     std::abs(step) < 1e15 ? WithCommas(std::llround(step))
                                           : SayNumber(step)});
  }
  return ticks;
}

std::vector<Tick> RankTicks(const std::vector<MapRow>& map) {
  constexpr size_t kAll = 16;
  std::vector<Tick> ticks;
  const auto count = static_cast<double>(map.size());
  const size_t stride = map.size() <= kAll ? 1 : (map.size() + 7) / 8;
  for (size_t i = 0; i < map.size(); i += stride) {
    ticks.push_back(
        {(static_cast<double>(i) + 0.5) / count, WithCommas(map[i].rank)});
  }
  return ticks;
}

// The values of the cells of a map that are known, from one bin on.
struct CellSummary {
  size_t first_bin = 0;
  int64_t known = 0;
  int64_t unknown = 0;
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  int64_t rank_of_most = 0;
  size_t bin_of_most = 0;
};

using Values = std::function<double(const MapRow& row, size_t bin)>;

CellSummary Summarize(const RunReport& report, const Values& values,
                      size_t first_bin) {
  CellSummary summary;
  summary.first_bin = first_bin;
  for (const MapRow& row : report.map) {
    for (size_t bin = first_bin; bin < report.bins.size(); ++bin) {
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
  double begin = 0;          // of the first class
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

// Returns what a map shows in words, without a full stop.
std::string SayMap(const RunReport& report, const MapKind& kind,
                   const CellSummary& summary) {
  std::string words = absl::StrCat(
      kind.what, " of ",
      Counted(static_cast<int64_t>(report.map.size()), "rank", "ranks"), " in ",
      SayStepsFrom(report, summary.first_bin), ": ");
  if (summary.known == 0) {
    words += "nothing is known";
  } else {
    absl::StrAppend(&words, SayRange(summary.least, summary.most, kind.say));
    const StepBin& bin = report.bins[summary.bin_of_most];
    if (summary.least < summary.most) {
      absl::StrAppend(&words, "; rank ", WithCommas(summary.rank_of_most),
                      " has the most, in ",
                      SaySteps(bin.first_step, bin.last_step));
    }
  }
  if (summary.unknown > 0) {
    absl::StrAppend(&words, "; ",
                    Counted(summary.unknown, "cell has", "cells have"),
                    " no record");
  }
  return words;
}

// Returns the legend of a map, whose classes have values or not.
std::string MapKey(const MapKind& kind, bool has_values) {
  std::vector<KeyEntry> entries;
  for (size_t i = 0; i < kind.ends.size() && has_values; ++i) {
    const std::string end = kind.say(kind.ends[i]);
    const bool has_begin = i == 0 && kind.begin > 0;
    entries.push_back(
        {absl::StrCat("c", i),
         Escaped(has_begin ? absl::StrCat(kind.say(kind.begin), " to ", end)
                           : absl::StrCat("up to ", end))});
  }
  if (has_values) {
    entries.push_back(
        {absl::StrCat("c", kind.ends.size()),
         Escaped(absl::StrCat("over ", kind.say(kind.ends.back())))});
  }
  entries.push_back({"hatch", "no record"});
  return Key(entries, kind.style);
}

std::string MapFigure(const RunReport& report, const MapKind& kind,
                      const CellSummary& summary) {
  CellMap map;
  map.rows = report.map.size();
  map.columns = report.bins.size();
  map.row_ticks = RankTicks(report.map);
  map.column_ticks = BinTicks(report.bins);
  map.style = kind.style;
  map.class_of = [&](size_t row, size_t bin) {
    return ClassOf(kind, kind.values(report.map[row], bin));
  };
  const std::string words = SayMap(report, kind, summary);
  return absl::StrCat("<figure><figcaption><h3>", kind.title, "</h3>",
                      MapKey(kind, summary.known > 0), "</figcaption>\n",
                      map.Svg(words), "<p class=\"note\">", Escaped(words),
                      ".</p></figure>\n");
}

std::string RowsFigure(const RunReport& report) {
  MapKind kind;
  kind.title = "Samples of a step";
  kind.style = "rows";
  kind.values = [](const MapRow& row, size_t bin) {
    return CellOf(row.rows, bin);
  };
  kind.say = SayNumber;
  kind.what = "The mean samples of a step";
  const CellSummary summary = Summarize(report, kind.values, /*first_bin=*/0);
  if (summary.known > 0 &&
      SayNumber(summary.least) == SayNumber(summary.most)) {
    return absl::StrCat(
        "<figure><figcaption><h3>", kind.title,
        "</h3></figcaption>\n<p class=\"note\">Each step of each rank has ",
        summary.least < summary.most ? "about " : "",
        Escaped(SayNumber(summary.most)),
        summary.most == 1 ? " sample" : " samples",
        summary.unknown > 0 ? ", where there is a record" : "",
        ".</p></figure>\n");
  }
  const double most = Amount(summary.most);
  // Where ranks have about as many samples, classes from 0 on would be one.
  if (summary.least >= most / 2) kind.begin = Amount(summary.least);
  for (const double part : {0.2, 0.4, 0.6, 0.8}) {
    kind.ends.push_back(kind.begin + part * (most - kind.begin));
  }
  return MapFigure(report, kind, summary);
}

std::string LostFigure(const RunReport& report) {
  MapKind kind;
  kind.title = "Lost time: the part of its time that a rank waited";
  kind.style = "lost";
  kind.values = [](const MapRow& row, size_t bin) {
    return CellOf(row.lost_share, bin);
  };
  kind.say = SayShare;
  kind.what = "The share of lost time";
  kind.ends = {0.1, 0.2, 0.4, 0.6};
  return MapFigure(report, kind,
                   Summarize(report, kind.values, FirstBinThatCounts(report)));
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

  // Returns the index of the first value of a bin. If it is the first bin, that
  // is the one at the end of the axis.
  static size_t FirstOf(size_t bin) { return bin == 0 ? 0 : bin + 1; }

  const std::vector<StepBin>& bins;
  std::vector<double> places;
};

// Returns the values that are finite, from one place on, in their order by
// size.
std::vector<double> Sorted(std::vector<double> values, size_t first) {
  values.erase(values.begin(),
               values.begin() + static_cast<std::ptrdiff_t>(first));
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
  const size_t first_bin = FirstBinThatCounts(report);
  const size_t first = BinValues::FirstOf(first_bin);
  const auto sorted_least = Sorted(least, first);
  const auto sorted_mean = Sorted(mean, first);
  const auto sorted_most = Sorted(most, first);
  if (sorted_least.empty() || sorted_mean.empty() || sorted_most.empty()) {
    return html +
           "<p>The records do not say how many batches were ready.</p>"
           "</figure>\n";
  }
  LineChart chart(BinTicks(report.bins),
                  NumberAxis(std::min(0.0, Sorted(least, 0).front()),
                             std::max(1.0, Sorted(most, 0).back()), 3),
                  120);
  chart.AddArea("band", values.places, least, most);
  chart.AddLine("mean", values.places, mean);
  const std::string words = absl::StrCat(
      "Ready batches in ", SayStepsFrom(report, first_bin), ": ",
      SayRange(sorted_least.front(), sorted_most.back(), SayNumber),
      "; the mean of a step is ",
      SayRange(sorted_mean.front(), sorted_mean.back(), SayNumber));
  return absl::StrCat(html, chart.Svg(words), "<p class=\"note\">",
                      Escaped(words),
                      ". Where no batch is ready, the loader is too slow."
                      "</p></figure>\n");
}

// Returns the top of an axis that shows the means of steps, and nearly all of
// the slowest ones. Both are in their order. A few very slow steps would
// flatten all others.
// Requires: there is a mean.
double TopOf(const std::vector<double>& means,
             const std::vector<double>& slowest) {
  if (slowest.empty()) return means.back();
  const double nearly_all = slowest[(slowest.size() - 1) * 95 / 100];
  return std::max(
      means.back(),
      std::min(slowest.back(), std::max(nearly_all, means.back()) * 1.5));
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
  const size_t first_bin = FirstBinThatCounts(report);
  const size_t first = BinValues::FirstOf(first_bin);
  const std::vector<double> sorted = Sorted(slowest, first);
  const std::vector<double> means = Sorted(tops.back(), first);
  std::string html = absl::StrCat(
      "<figure><figcaption><h3>Seconds of a step, as a mean of all ranks</h3>",
      Key(entries), "</figcaption>\n");
  if (means.empty()) {
    return html + "<p>The records have no times of steps.</p></figure>\n";
  }
  const Axis axis = SecondsAxis(0, TopOf(means, sorted), 4);
  LineChart chart(BinTicks(report.bins), axis, 220);
  for (size_t i = 0; i < std::size(parts); ++i) {
    chart.AddArea(parts[i].style, values.places, tops[i], tops[i + 1]);
  }
  chart.AddLine("slowest", values.places, slowest);
  std::string words = absl::StrCat(
      "In ", SayStepsFrom(report, first_bin), ", the mean time of a step is ",
      SayRange(means.front(), means.back(), SaySeconds));
  if (!sorted.empty()) {
    absl::StrAppend(&words, "; the slowest step takes ",
                    SaySeconds(sorted.back()));
  }
  const auto leaves = [&axis](const std::vector<double>& of_steps) {
    const std::vector<double> all = Sorted(of_steps, 0);
    return !all.empty() && all.back() > axis.most;
  };
  return absl::StrCat(html, chart.Svg(words), "<p class=\"note\">",
                      Escaped(words), ".",
                      leaves(slowest) || leaves(tops.back())
                          ? " What takes longer than the picture shows ends at "
                            "its top."
                          : "",
                      "</p></figure>\n");
}

}  // namespace

std::string MapSection(const RunReport& report) {
  const bool is_empty = report.map.empty() || report.bins.empty();
  std::string html = BeginSection(
      "Ranks over the steps",
      is_empty ? "" : "Each line is a rank, and each column some steps.");
  if (is_empty) {
    return html + "<p>There are no steps to show.</p>\n</section>\n";
  }
  absl::StrAppend(&html, RowsFigure(report), LostFigure(report));
  const auto shown = static_cast<int64_t>(report.map.size());
  if (report.lost.ranks.size() > report.map.size()) {
    absl::StrAppend(&html, "<p class=\"note\">The maps show the ",
                    Counted(shown, "rank that is", "ranks that are"),
                    " late most.</p>\n");
  } else if (report.size > shown) {
    absl::StrAppend(&html, "<p class=\"note\">The maps show the ",
                    Counted(shown, "rank that has", "ranks that have"),
                    " records.</p>\n");
  }
  return html + "</section>\n";
}

std::string StepsSection(const RunReport& report) {
  std::string html = BeginSection("Over the steps", "");
  if (report.bins.empty()) {
    return html + "<p>There are no steps to show.</p>\n</section>\n";
  }
  return html + QueueFigure(report) + SecondsFigure(report) + "</section>\n";
}

}  // namespace lockstep::internal_report
