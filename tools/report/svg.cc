#include "lockstep/tools/report/svg.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "lockstep/tools/report/page_text.h"
#include "lockstep/tools/words/words.h"

namespace lockstep::internal_report {
namespace {

// Shapes of a chart have whole coordinates in a box of this size.
constexpr int kBoxWidth = 2000;
constexpr int kBoxHeight = 1000;
// Differences of such values, and their multiples, are finite.
constexpr double kMostValue = 1e300;

double Bounded(double value) {
  if (std::isnan(value)) return 0;
  return std::clamp(value, -kMostValue, kMostValue);
}

// Returns 1, 2 or 5 times a power of ten that is not less than `least`.
// Requires: least is finite and above 0.
double RoundStep(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1, 2, 5}) {
    if (power * factor >= least * (1 - 1e-9)) return power * factor;
  }
  return power * 10;
}

// Returns a number between others that are `step` apart.
std::string TickLabel(double value, double step) {
  if (std::abs(value) < step / 2) return "0";
  if (std::abs(value) >= 1e9 || step < 1e-5) {
    return absl::StrFormat("%.4g", value);
  }
  if (step >= 1) return WithCommas(std::llround(value));
  const int digits = static_cast<int>(-std::floor(std::log10(step) + 1e-9));
  return absl::StrFormat("%.*f", digits, value);
}

Axis MakeAxis(double least, double most, int wanted, double unit,
              absl::string_view unit_name) {
  Axis axis;
  least = Bounded(least) / unit;
  most = std::max(Bounded(most) / unit, least);
  // A step has to be large enough to tell its multiples apart.
  constexpr double kTiny = 1e-300;
  const double size = std::max(std::abs(least), std::abs(most));
  if (!(most - least > size * 1e-9) || size < kTiny) {
    const double room = size < kTiny ? 1 : size / 2;
    if (least != 0) least -= room;
    most += room;
  }
  const double step = RoundStep((most - least) / wanted);
  const double first = std::floor(least / step + 1e-9);
  const double last = std::max(std::ceil(most / step - 1e-9), first + 1);
  axis.least = first * step * unit;
  axis.most = last * step * unit;
  for (double i = first; i <= last; ++i) {
    std::string label = TickLabel(i * step, step);
    if (!unit_name.empty()) absl::StrAppend(&label, " ", unit_name);
    axis.ticks.push_back({(i - first) / (last - first), std::move(label)});
  }
  return axis;
}

// Returns a place as percents of a length.
std::string Percent(double place) {
  return absl::StrFormat("%.5g%%", std::clamp(place, 0.0, 1.0) * 100);
}

int64_t AcrossOf(double place) {
  return std::llround(std::clamp(place, 0.0, 1.0) * kBoxWidth);
}

int64_t DownOf(const Axis& axis, double value) {
  return std::llround((1 - axis.PlaceOf(value)) * kBoxHeight);
}

// Begins a picture whose box is that of its shapes. Its labels stand around it.
std::string Begin(absl::string_view style, int height,
                  absl::string_view alternative) {
  return absl::StrCat("<svg class=\"", style, "\" role=\"img\" height=\"",
                      height, "\" aria-label=\"", Escaped(alternative), "\">");
}

// Begins the part of a picture that stretches.
std::string BeginBox(int64_t width, int64_t height) {
  return absl::StrCat(
      "<svg aria-hidden=\"true\" width=\"100%\" height=\"100%\" viewBox=\"0 0 ",
      width, " ", height, "\" preserveAspectRatio=\"none\">");
}

// Appends the labels of steps below a picture. Those near its ends stay within
// it.
void AppendTicksBelow(const std::vector<Tick>& ticks, int height,
                      std::string& svg) {
  absl::StrAppend(&svg, "<text class=\"side\" x=\"-7\" y=\"", height + 17,
                  "\">step</text>");
  for (const Tick& tick : ticks) {
    const char* const anchor = tick.place < 0.06   ? " class=\"left\""
                               : tick.place > 0.94 ? " class=\"right\""
                                                   : "";
    const std::string place = Percent(tick.place);
    absl::StrAppend(&svg, "<line class=\"tick\" x1=\"", place, "\" x2=\"",
                    place, "\" y1=\"", height, "\" y2=\"", height + 4,
                    "\"/><text", anchor, " x=\"", place, "\" y=\"", height + 17,
                    "\">", Escaped(tick.label), "</text>");
  }
}

// Appends the labels at the left of a picture, whose places are from the top.
void AppendTicksBeside(const std::vector<Tick>& ticks, std::string& svg) {
  for (const Tick& tick : ticks) {
    absl::StrAppend(&svg, "<text class=\"side\" x=\"-7\" dy=\".35em\" y=\"",
                    Percent(tick.place), "\">", Escaped(tick.label), "</text>");
  }
}

// Returns the command of a path before its point with this number. Further
// points need none.
absl::string_view CommandOf(size_t point) {
  return point == 0 ? "M" : point == 1 ? "L" : " ";
}

// Calls `show` with the first and the last index of each part whose values are
// all known.
template <typename Known, typename Show>
void ForEachPart(size_t size, Known is_known, Show show) {
  for (size_t first = 0; first < size;) {
    size_t last = first;
    while (last < size && is_known(last)) ++last;
    if (last > first) show(first, last - 1);
    first = last + 1;
  }
}

}  // namespace

double Axis::PlaceOf(double value) const {
  if (is_logarithmic) {
    const double from = std::log10(least);
    const double exponent = std::log10(std::clamp(Bounded(value), least, most));
    return std::clamp((exponent - from) / (std::log10(most) - from), 0.0, 1.0);
  }
  return std::clamp((Bounded(value) - least) / (most - least), 0.0, 1.0);
}

Axis NumberAxis(double least, double most, int wanted) {
  return MakeAxis(least, most, wanted, 1, "");
}

Axis SecondsAxis(double least, double most, int wanted) {
  const TimeUnit unit =
      UnitOf(std::max(std::abs(Bounded(least)), std::abs(Bounded(most))));
  return MakeAxis(least, most, wanted, unit.seconds, unit.name);
}

Axis LogarithmicAxis(double least, double most, int wanted) {
  constexpr double kLeastValue = 1 / kMostValue;
  const double from = std::clamp(Bounded(least), kLeastValue, kMostValue / 10);
  const double to = std::clamp(Bounded(most), from, kMostValue);
  // The logarithm of a power of ten may be a bit beside a whole number.
  const double first = std::floor(std::log10(from) + 1e-9);
  const double end = std::max(std::ceil(std::log10(to) - 1e-9), first + 1);
  const double stride = std::ceil((end - first) / wanted);
  const double last = first + std::ceil((end - first) / stride) * stride;
  Axis axis;
  axis.is_logarithmic = true;
  axis.least = std::pow(10, first);
  axis.most = std::pow(10, last);
  for (double i = first; i <= last; i += stride) {
    const double power = std::pow(10, i);
    axis.ticks.push_back(
        {(i - first) / (last - first), TickLabel(power, power)});
  }
  return axis;
}

std::vector<double> RoundNumbers(double least, double most, int wanted) {
  std::vector<double> numbers;
  least = Bounded(least);
  most = Bounded(most);
  if (!(most > least)) return {least};
  const double step = std::max(RoundStep((most - least) / wanted), 1.0);
  const double first = std::ceil(least / step - 1e-9);
  // Numbers that are too large to be told apart give few ticks.
  for (double i = first; i * step <= most && numbers.size() < 100; ++i) {
    if (!numbers.empty() && numbers.back() == i * step) break;
    numbers.push_back(i * step);
  }
  if (numbers.empty()) numbers.push_back(least);
  return numbers;
}

std::vector<Tick> NumberTicks(double least, double most, int wanted) {
  std::vector<Tick> ticks;
  for (const double number : RoundNumbers(least, most, wanted)) {
    const double place = most > least ? (number - least) / (most - least) : 0.5;
    ticks.push_back({place, TickLabel(number, 1)});
  }
  return ticks;
}

std::string StackedBar(absl::string_view alternative,
                       const std::vector<BarPart>& parts) {
  std::string svg =
      absl::StrCat("<svg class=\"bar\" role=\"img\" aria-label=\"",
                   Escaped(alternative), "\">");
  double whole = 0;
  for (const BarPart& part : parts) whole += Amount(part.value);
  double done = 0;
  for (const BarPart& part : parts) {
    const double value = Amount(part.value);
    if (!(value > 0) || !(whole > 0)) continue;
    absl::StrAppend(&svg, "<rect class=\"", part.style, "\" x=\"",
                    Percent(done / whole), "\" width=\"",
                    Percent(value / whole), "\" height=\"100%\"><title>",
                    Escaped(part.name), ": ", Escaped(SayShare(value / whole)),
                    "</title></rect>");
    done += value;
  }
  return svg + "</svg>";
}

std::string CellMap::Svg(absl::string_view alternative) const {
  constexpr size_t kMostHeight = 384;
  const int height =
      static_cast<int>(std::clamp<size_t>(rows * 26, 26, kMostHeight));
  std::string svg =
      Begin(absl::StrCat("plot map ", style), height, alternative);
  if (rows > 0 && columns > 0) {
    std::vector<std::string> paths(classes);
    for (size_t row = 0; row < rows; ++row) {
      std::vector<size_t> ends(classes, 0);  // of the last run of each class
      for (size_t first = 0; first < columns;) {
        const int of_first = class_of(row, first);
        size_t end = first + 1;
        while (end < columns && class_of(row, end) == of_first) ++end;
        if (of_first >= 0 && of_first < classes) {
          size_t& before = ends[of_first];
          std::string& path = paths[of_first];
          if (before == 0) {
            absl::StrAppend(&path, "M", first, " ", row, "h", end - first);
          } else {
            absl::StrAppend(&path, "m", first - before, " 0h", end - first);
          }
          before = end;
        }
        first = end;
      }
    }
    absl::StrAppend(
        &svg,
        BeginBox(static_cast<int64_t>(columns), static_cast<int64_t>(rows)),
        "<g transform=\"translate(0 .5)\">");
    for (int i = 0; i < classes; ++i) {
      if (paths[i].empty()) continue;
      absl::StrAppend(&svg, "<path class=\"c", i, "\" d=\"", paths[i], "\"/>");
    }
    svg += "</g></svg>";
  }
  AppendTicksBeside(row_ticks, svg);
  AppendTicksBelow(column_ticks, height, svg);
  return svg + "</svg>";
}

LineChart::LineChart(std::vector<Tick> ticks, Axis axis, int height)
    : ticks_(std::move(ticks)), axis_(std::move(axis)), height_(height) {}

void LineChart::AddLine(absl::string_view style,
                        const std::vector<double>& places,
                        const std::vector<double>& values) {
  std::string path;
  ForEachPart(
      places.size(), [&](size_t i) { return std::isfinite(values[i]); },
      [&](size_t first, size_t last) {
        for (size_t i = first; i <= last; ++i) {
          absl::StrAppend(&path, CommandOf(i - first), AcrossOf(places[i]), " ",
                          DownOf(axis_, values[i]));
        }
        // A line of one point has a length of 0, but a round end.
        if (first == last) path += "h0";
      });
  if (path.empty()) return;
  absl::StrAppend(&shapes_, "<path class=\"line ", style, "\" d=\"", path,
                  "\"/>");
}

void LineChart::AddPoints(absl::string_view style,
                          const std::vector<double>& places,
                          const std::vector<double>& values) {
  std::string path;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    absl::StrAppend(&path, "M", AcrossOf(places[i]), " ",
                    DownOf(axis_, values[i]), "h0");
  }
  if (path.empty()) return;
  absl::StrAppend(&shapes_, "<path class=\"points ", style, "\" d=\"", path,
                  "\"/>");
}

void LineChart::AddArea(absl::string_view style,
                        const std::vector<double>& places,
                        const std::vector<double>& from,
                        const std::vector<double>& to) {
  std::string path;
  ForEachPart(
      places.size(),
      [&](size_t i) { return std::isfinite(from[i]) && std::isfinite(to[i]); },
      [&](size_t first, size_t last) {
        for (size_t i = first; i <= last; ++i) {
          absl::StrAppend(&path, CommandOf(i - first), AcrossOf(places[i]), " ",
                          DownOf(axis_, to[i]));
        }
        for (size_t i = last + 1; i-- > first;) {
          absl::StrAppend(&path, i == last ? "L" : " ", AcrossOf(places[i]),
                          " ", DownOf(axis_, from[i]));
        }
        path += "z";
      });
  if (path.empty()) return;
  absl::StrAppend(&shapes_, "<path class=\"area ", style, "\" d=\"", path,
                  "\"/>");
}

std::string LineChart::Svg(absl::string_view alternative) const {
  std::string svg = Begin("plot chart", height_, alternative);
  std::vector<Tick> beside;
  for (const Tick& tick : axis_.ticks) {
    const std::string place = Percent(1 - tick.place);
    absl::StrAppend(&svg, "<line class=\"grid\" x2=\"100%\" y1=\"", place,
                    "\" y2=\"", place, "\"/>");
    beside.push_back({1 - tick.place, tick.label});
  }
  absl::StrAppend(&svg, BeginBox(kBoxWidth, kBoxHeight), shapes_, "</svg>");
  AppendTicksBeside(beside, svg);
  AppendTicksBelow(ticks_, height_, svg);
  return svg + "</svg>";
}

}  // namespace lockstep::internal_report
