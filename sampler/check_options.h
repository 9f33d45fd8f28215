// Checks and digests that several orders use for their options.
#ifndef LOCKSTEP_SAMPLER_CHECK_OPTIONS_H_
#define LOCKSTEP_SAMPLER_CHECK_OPTIONS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

// The largest number of samples, and the longest stream, that these orders
// take.
inline constexpr int64_t kMaxSize = int64_t{1} << 62;

// Each function below returns INVALID_ARGUMENT, whose message begins with
// `what`, the name of the order, if its condition fails.

// Requires: 0 <= size <= 2^62.
absl::Status CheckSize(absl::string_view what, int64_t size);

// Returns a + b. Requires: the sum is at most 2^62, and both passed CheckSize.
absl::StatusOr<int64_t> AddSizes(absl::string_view what, int64_t a, int64_t b);

// Requires: 1 <= value <= 2^62.
absl::Status CheckPositive(absl::string_view what, absl::string_view name,
                           int64_t value);

// Requires: each index is at least 0 and below `size`.
absl::Status CheckIndices(absl::string_view what,
                          absl::Span<const int64_t> indices, int64_t size);

// Requires: there is a weight, all are finite and not negative, and one is
// positive.
absl::Status CheckWeights(absl::string_view what,
                          absl::Span<const double> weights);

// Returns what a list of indices has of a dataset of `size` samples.
// Requires: CheckIndices has accepted them.
Coverage CoverageOf(absl::Span<const int64_t> indices, int64_t size);

// Returns a digest for OrderDescription::data.
template <typename T>
uint64_t DigestOfValues(const std::vector<T>& values) {
  return DigestOf({reinterpret_cast<const char*>(values.data()),
                   values.size() * sizeof(T)})
      .low;
}

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_CHECK_OPTIONS_H_
