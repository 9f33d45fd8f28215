#include "lockstep/session/sums.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/plugin/metrics_sink.h"

namespace lockstep {

double ValueOf(absl::Span<const Metric> metrics, absl::string_view name) {
  for (const Metric& metric : metrics) {
    if (metric.name == name) return metric.value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void Sums::Add(absl::string_view name, double value) {
  for (Metric& sum : values_) {
    if (sum.name != name) continue;
    sum.value += value;
    return;
  }
  values_.push_back({std::string(name), value});
  absl::StrAppend(&names_, names_.empty() ? "" : ", ", name);
}

void Sums::Clear() {
  for (Metric& sum : values_) sum.value = 0;
}

}  // namespace lockstep
