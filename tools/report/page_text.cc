#include "lockstep/tools/report/page_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "lockstep/tools/words/words.h"

namespace lockstep::internal_report {

std::string Escaped(absl::string_view text, size_t most) {
  return absl::StrReplaceAll(Printable(text, most), {{"&", "&amp;"},
                                                     {"<", "&lt;"},
                                                     {">", "&gt;"},
                                                     {"\"", "&quot;"},
                                                     {"'", "&#39;"}});
}

double Amount(double value) {
  // The sum of a million such values is finite.
  constexpr double kMost = 1e300;
  return std::isnan(value) || value < 0 ? 0 : std::min(value, kMost);
}

double ShareOf(double part, double whole) {
  return whole > 0 && std::isfinite(whole)
             ? part / whole
             : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace lockstep::internal_report
