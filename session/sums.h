// Sums are named sums over samples. The session makes them means over the
// samples of all ranks:
//
//   sums.Add("loss", loss);        // of the rows of a batch, added up
//   sums.Add("accuracy", right);   // how many of them were right
//
// A sum may have a weight of its own, for example where a batch's rows have
// different numbers of tokens. Its mean is over that weight:
//
//   sums.Add("loss", loss, tokens);
//
// All ranks must add the same names in the same order, also for a batch without
// data. If a rank's names differ, all ranks get an error.
#ifndef LOCKSTEP_SESSION_SUMS_H_
#define LOCKSTEP_SESSION_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/metrics/metrics_sink.h"

namespace lockstep {

// Returns the value of that name, or NaN if there is none.
double ValueOf(absl::Span<const Metric> metrics, absl::string_view name);

// Thread-safety: thread-compatible.
class Sums {
 public:
  // Adds to the sum of that name, which starts at 0. The session divides it by
  // the weight of the step: by default, the number of rows.
  void Add(absl::string_view name, double value);

  // The same for a sum that the session divides by the sum of these weights,
  // which must be finite and 0 or more. A name is always added with a weight or
  // always without.
  void Add(absl::string_view name, double value, double weight);

  // The sums, in the order in which their names were first added.
  absl::Span<const Metric> values() const { return values_; }

  // The weight of each sum, in the same order. It is empty for a sum without a
  // weight of its own.
  absl::Span<const std::optional<double>> weights() const { return weights_; }

  // Returns why a call of Add was wrong, or OK.
  const absl::Status& status() const { return status_; }

  // Sets all sums to 0, and keeps their names.
  void Clear();

  // The names in the form in which ranks compare them: "loss, accuracy". If
  // they are long, a digest of all names stands for the last ones.
  std::string Describe() const;

 private:
  size_t IndexOf(absl::string_view name, bool has_weight);

  std::vector<Metric> values_;
  std::vector<std::optional<double>> weights_;
  std::string names_;
  size_t next_ = 0;  // the sum that is probably added next
  absl::Status status_;
};

// The result of an evaluation, over the samples of all ranks.
struct Evaluation {
  int64_t samples = 0;
  std::vector<Metric> means;

  // Returns the mean of that name. It is NaN if there is none, or if it is a
  // mean over nothing.
  double mean(absl::string_view name) const { return ValueOf(means, name); }
};

}  // namespace lockstep

#endif  // LOCKSTEP_SESSION_SUMS_H_
