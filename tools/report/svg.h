// Pictures in SVG for a page. They are as wide as their place: shapes stretch,
// and texts and lines do not. Colours come from the classes of page_style.h.
// Each picture has an alternative text, which should tell its numbers.
// Internal.
//
//   LineChart chart(NumberTicks(1, 100, 5), SecondsAxis(0, 0.02, 4), 160);
//   chart.AddLine("own", places, seconds);
//   html += chart.Svg("Seconds of a step: from 12 ms to 20 ms");
#ifndef LOCKSTEP_TOOLS_REPORT_SVG_H_
#define LOCKSTEP_TOOLS_REPORT_SVG_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep::internal_report {

// A mark on an axis: its place, from 0 to 1, and what stands there.
struct Tick {
  double place = 0;
  std::string label;
};

// The values from `least` to `most`, which are finite and differ. Those of a
// logarithmic axis are above 0.
struct Axis {
  double least = 0;
  double most = 1;
  bool is_logarithmic = false;
  std::vector<Tick> ticks;

  // Returns the place of a value, from 0 to 1. A value beyond the axis has the
  // place of its end.
  double PlaceOf(double value) const;
};

// Returns an axis that begins and ends with round numbers and has about
// `wanted` steps. Values that are not finite count as 0.
Axis NumberAxis(double least, double most, int wanted);
// Does the same for seconds.
Axis SecondsAxis(double least, double most, int wanted);

// Returns an axis that begins and ends with powers of ten and has at most
// `wanted` steps, which are at most 8. Values below 1e-300 count as that.
Axis LogarithmicAxis(double least, double most, int wanted);

// Returns round whole numbers between two, at most about `wanted` of them.
std::vector<double> RoundNumbers(double least, double most, int wanted);

// Returns ticks at round numbers, between `least` at 0 and `most` at 1.
std::vector<Tick> NumberTicks(double least, double most, int wanted);

// A part of a bar. `style` is a class, such as "data".
struct BarPart {
  std::string name;
  double value = 0;
  absl::string_view style;
};

// Returns a bar whose parts have widths by their values. Values that are below
// 0 or not finite count as 0.
std::string StackedBar(absl::string_view alternative,
                       const std::vector<BarPart>& parts);

// A map of cells, each of which has one of a few classes.
struct CellMap {
  size_t rows = 0;
  size_t columns = 0;
  std::vector<Tick> row_ticks;     // places from the top
  std::vector<Tick> column_ticks;  // places from the left
  absl::string_view style;         // the class of its colours
  int classes = 5;
  // Returns the class of a cell, or -1 if nothing is known of it.
  std::function<int(size_t row, size_t column)> class_of;

  std::string Svg(absl::string_view alternative) const;
};

// Lines, points and areas over a horizontal axis, whose places are from 0 to 1.
// Where a value is not finite, there is a gap.
// Thread-safety: thread-compatible.
class LineChart {
 public:
  LineChart(std::vector<Tick> ticks, Axis axis, int height);

  // Require: there is a value for each place.
  void AddLine(absl::string_view style, const std::vector<double>& places,
               const std::vector<double>& values);
  void AddPoints(absl::string_view style, const std::vector<double>& places,
                 const std::vector<double>& values);
  void AddArea(absl::string_view style, const std::vector<double>& places,
               const std::vector<double>& from, const std::vector<double>& to);

  std::string Svg(absl::string_view alternative) const;

 private:
  std::vector<Tick> ticks_;
  Axis axis_;
  int height_;
  std::string shapes_;
};

}  // namespace lockstep::internal_report

#endif  // LOCKSTEP_TOOLS_REPORT_SVG_H_
