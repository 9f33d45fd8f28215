#include "lockstep/tools/report/page_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/utf8.h"

namespace lockstep::internal_report {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

// Returns whether a character of several bytes controls how others are shown:
// U+0080 to U+009F, those that turn the direction of text, and those that can't
// be in HTML.
bool IsControl(absl::string_view character) {
  const auto byte = [character](size_t at) {
    return static_cast<unsigned char>(character[at]);
  };
  if (character.size() == 2) return byte(0) == 0xc2 && byte(1) < 0xa0;
  if (character.size() != 3) return false;
  if (byte(0) == 0xef && byte(1) == 0xbf) return byte(2) >= 0xbe;
  if (byte(0) != 0xe2) return false;
  return (byte(1) == 0x80 && ((byte(2) >= 0xaa && byte(2) <= 0xae) ||
                              byte(2) == 0x8e || byte(2) == 0x8f)) ||
         (byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9);
}

void AppendEscaped(char character, std::string& html) {
  switch (character) {
    case '&':
      html += "&amp;";
      return;
    case '<':
      html += "&lt;";
      return;
    case '>':
      html += "&gt;";
      return;
    case '"':
      html += "&quot;";
      return;
    case '\'':
      html += "&#39;";
      return;
    case '\n':
    case '\t':
      html += character;
      return;
    default:
      break;
  }
  if (static_cast<unsigned char>(character) < ' ' || character == '\x7f') {
    html += kReplacement;
  } else {
    html += character;
  }
}

}  // namespace

std::string Escaped(absl::string_view text, size_t most) {
  std::string html;
  size_t taken = 0;
  for (absl::string_view left = text; !left.empty();) {
    const size_t size = internal_base::SizeOfFirstUtf8(left);
    taken += std::max<size_t>(size, 1);
    if (taken > most) return html + "\u2026";
    if (size == 1) {
      // The end of a line may have two characters.
      const bool ends_line =
          left[0] == '\r' && left.size() > 1 && left[1] == '\n';
      if (!ends_line) AppendEscaped(left[0], html);
    } else if (size == 0 || IsControl(left.substr(0, size))) {
      html += kReplacement;
    } else {
      absl::StrAppend(&html, left.substr(0, size));
    }
    left.remove_prefix(std::max<size_t>(size, 1));
  }
  return html;
}

std::string SayCount(int64_t number) {
  std::string digits = absl::StrCat(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string SayCounted(int64_t number, absl::string_view one,
                       absl::string_view many) {
  return absl::StrCat(SayCount(number), " ", number == 1 ? one : many);
}

std::string SayNumber(double value) {
  if (!std::isfinite(value)) return "not known";
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 999.5 && size < 1e12) return SayCount(std::llround(value));
  return absl::StrFormat("%.3g", value);
}

TimeUnit UnitOf(double seconds) {
  const double size = std::abs(seconds);
  if (size == 0 || !std::isfinite(size)) return {1, "s"};
  if (size < 999.5e-9) return {1e-9, "ns"};
  if (size < 999.5e-6) return {1e-6, "\u00b5s"};
  if (size < 999.5e-3) return {1e-3, "ms"};
  return {1, "s"};
}

std::string SaySeconds(double seconds) {
  if (!std::isfinite(seconds)) return "not known";
  const TimeUnit unit = UnitOf(seconds);
  return absl::StrCat(SayNumber(seconds / unit.seconds), " ", unit.name);
}

std::string SayShare(double share) {
  if (!std::isfinite(share)) return "not known";
  // A hundred times this is finite.
  constexpr double kMost = 1e300;
  const double percent = std::clamp(share, -kMost, kMost) * 100;
  if (percent == 0) return "0 %";
  if (percent > 0 && percent < 0.05) return "<0.1 %";
  if (std::abs(percent) < 9.95) return absl::StrFormat("%.1f %%", percent);
  if (std::abs(percent) < 1e6) return absl::StrFormat("%.0f %%", percent);
  return absl::StrFormat("%.3g %%", percent);
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
