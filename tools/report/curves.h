// ReadCurves reads the metrics of a training, such as its loss, from what the
// sink json_lines of [metrics] has written.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const std::vector<Curve> curves,
//       ReadCurves("/data/runs/7/metrics", CurveWriter{pid, began}));
//   for (const Curve& curve : curves) Show(curve.name, curve.last.value);
#ifndef LOCKSTEP_TOOLS_REPORT_CURVES_H_
#define LOCKSTEP_TOOLS_REPORT_CURVES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// A metric over the steps of the training, also of earlier runs that it goes on
// from. Where there are many steps, a point is the mean of some of them.
struct Curve {
  struct Point {
    int64_t step = 0;
    double value = 0;
  };
  static constexpr size_t kMostPoints = 300;

  std::string name;           // "train/loss"
  bool is_of_steps = false;   // else of evaluations, or of the trainer
  std::vector<Point> points;  // in the order of steps
  Point last, least, most;
  int64_t not_finite = 0;  // the number of values that are NaN or infinite
};

// The process of rank 0, and when it began, in seconds since 1970.
struct CurveWriter {
  int64_t pid = 0;
  double began = 0;
};

// Reads the metrics whose names have a '/', up to the end of the process
// `writer`; unset: to the end. Steps that a restart has repeated count once.
// Numbers that are not finite, and lines that can't be read, are left out.
// Returns NOT_FOUND if that process has written nothing there, and
// INVALID_ARGUMENT if the files have records of ranks.
absl::StatusOr<std::vector<Curve>> ReadCurves(
    absl::string_view path, std::optional<CurveWriter> writer);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_REPORT_CURVES_H_
