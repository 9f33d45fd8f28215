#include "lockstep/sampler/check_options.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep {

absl::Status CheckSize(absl::string_view what, int64_t size) {
  if (size >= 0 && size <= kMaxSize) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": size must be from 0 to 2^62, but got size=", size));
}

absl::StatusOr<int64_t> AddSizes(absl::string_view what, int64_t a, int64_t b) {
  if (b <= kMaxSize - a) return a + b;
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": sizes must add up to 2^62 at most, but ", a,
                   " and ", b, " are more"));
}

absl::Status CheckPositive(absl::string_view what, absl::string_view name,
                           int64_t value) {
  if (value >= 1 && value <= kMaxSize) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": ", name, " should be a positive integer value, but ", "got ",
      name, "=", value, "; at most 2^62 is possible"));
}

absl::Status CheckIndices(absl::string_view what,
                          absl::Span<const int64_t> indices, int64_t size) {
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] >= 0 && indices[i] < size) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": indices must be from 0 to ", size - 1,
                     ", but indices[", i, "] is ", indices[i]));
  }
  return absl::OkStatus();
}

Coverage CoverageOf(absl::Span<const int64_t> indices, int64_t size) {
  std::vector<bool> has(static_cast<size_t>(size));
  for (const int64_t index : indices) {
    if (has[static_cast<size_t>(index)]) return Coverage::kAny;
    has[static_cast<size_t>(index)] = true;
  }
  return static_cast<int64_t>(indices.size()) == size ? Coverage::kEachOnce
                                                      : Coverage::kAtMostOnce;
}

absl::Status CheckWeights(absl::string_view what,
                          absl::Span<const double> weights) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (std::isfinite(weights[i]) && weights[i] >= 0) {
      sum += weights[i];
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        what,
        ": probability tensor contains either `inf`, `nan` or element < "
        "0: weights[",
        i, "] is ", weights[i]));
  }
  if (sum > 0 && std::isfinite(sum)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": invalid multinomial distribution (sum of probabilities <= 0, ",
      "or beyond the largest number): ", weights.size(), " weights add up to ",
      sum));
}

}  // namespace lockstep
