// Sums are named sums over samples. The session makes them means over the
// samples of all ranks:
//
//   sums.Add("loss", loss);        // of the rows of a batch, added up
//   sums.Add("accuracy", right);   // how many of them were right
//
// All ranks must add the same names in the same order, also for a batch without
// data. If a rank's names differ, all ranks get an error.
#ifndef LOCKSTEP_SESSION_SUMS_H_
#define LOCKSTEP_SESSION_SUMS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/plugin/metrics_sink.h"

namespace lockstep {

// Returns the value of that name, or NaN if there is none.
double ValueOf(absl::Span<const Metric> metrics, absl::string_view name);

// Thread-safety: thread-compatible.
class Sums {
 public:
  // Adds to the sum of that name, which starts at 0.
  void Add(absl::string_view name, double value);

  // The sums, in the order in which their names were first added.
  absl::Span<const Metric> values() const { return values_; }

  // Sets all sums to 0, and keeps their names.
  void Clear();

  // The names in the form in which ranks compare them: "loss, accuracy".
  const std::string& names() const { return names_; }

 private:
  std::vector<Metric> values_;
  std::string names_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SESSION_SUMS_H_
