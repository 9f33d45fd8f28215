#include "lockstep/session/sums.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/metrics/metrics_sink.h"

namespace lockstep {

double ValueOf(absl::Span<const Metric> metrics, absl::string_view name) {
  for (const Metric& metric : metrics) {
    if (metric.name == name) return metric.value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void Sums::Add(absl::string_view name, double value) {
  values_[IndexOf(name, /*has_weight=*/false)].value += value;
}

void Sums::Add(absl::string_view name, double value, double weight) {
  const size_t index = IndexOf(name, /*has_weight=*/true);
  if (!std::isfinite(weight) || weight < 0) {
    status_.Update(absl::InvalidArgumentError(
        absl::StrCat("the weight of the sum '", absl::CHexEscape(name), "' is ",
                     weight, "; it should be finite and 0 or more")));
    return;
  }
  values_[index].value += value;
  if (weights_[index].has_value()) *weights_[index] += weight;
}

// Returns the index of the sum of that name, which it adds if there is none.
size_t Sums::IndexOf(absl::string_view name, bool has_weight) {
  for (size_t tried = 0; tried < values_.size(); ++tried) {
    const size_t index = (next_ + tried) % values_.size();
    if (values_[index].name != name) continue;
    next_ = index + 1;
    if (weights_[index].has_value() != has_weight) {
      status_.Update(absl::InvalidArgumentError(absl::StrCat(
          "the sum '", absl::CHexEscape(name),
          "' was added with a weight of its own, and also without one: add it "
          "always in the same way")));
    }
    return index;
  }
  values_.push_back({std::string(name), 0});
  weights_.push_back(has_weight ? std::optional<double>(0) : std::nullopt);
  absl::StrAppend(&names_, names_.empty() ? "" : ", ", name,
                  has_weight ? " by its weight" : "");
  next_ = values_.size();
  return next_ - 1;
}

void Sums::Clear() {
  for (Metric& sum : values_) sum.value = 0;
  for (std::optional<double>& weight : weights_) {
    if (weight.has_value()) weight = 0;
  }
  next_ = 0;
  status_ = absl::OkStatus();
}

std::string Sums::Describe() const {
  constexpr size_t kLong = 200;
  constexpr size_t kShown = 120;
  if (names_.size() <= kLong) return names_;
  return absl::StrCat(names_.substr(0, kShown), "... (", values_.size(),
                      " names with the digest ",
                      absl::Hex(DigestOf(names_).low, absl::kZeroPad16), ")");
}

}  // namespace lockstep
