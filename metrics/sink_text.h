// These functions make the texts that several sinks have in common. Internal.
//
//   std::string line = absl::StrCat(TimeText(), " loss ");
//   AppendNumber(0.25, line);
#ifndef LOCKSTEP_METRICS_SINK_TEXT_H_
#define LOCKSTEP_METRICS_SINK_TEXT_H_

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_metrics {

// Appends a number with std::to_chars, which allocates no memory and takes a
// tenth of a microsecond, since a sink prints several numbers in each step.
// `precision` is the number of digits. Without it, the digits are the fewest
// that read back as the same number.
template <typename... Precision>
void AppendNumber(double value, std::string& text, Precision... precision) {
  if (std::isnan(value)) {  // to_chars may write "-nan"
    text += "nan";
    return;
  }
  std::array<char, 32> digits;
  const std::to_chars_result end = std::to_chars(
      digits.data(), digits.data() + digits.size(), value, precision...);
  text.append(digits.data(), end.ptr);
}

// Returns the suffix of the names of a rank's own files, such as ".rank0003".
inline std::string RankSuffix(int64_t rank) {
  return absl::StrCat(".rank", absl::Dec(rank, absl::kZeroPad4));
}

// Returns the seconds since 1970, such as "1764005001.234567".
inline std::string TimeText() {
  constexpr int64_t kMillion = 1'000'000;
  const int64_t now = absl::ToUnixMicros(absl::Now());
  return absl::StrCat(now / kMillion, ".",
                      absl::Dec(now % kMillion, absl::kZeroPad6));
}

}  // namespace lockstep::internal_metrics

#endif  // LOCKSTEP_METRICS_SINK_TEXT_H_
