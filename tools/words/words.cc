#include "lockstep/tools/words/words.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/utf8.h"

namespace lockstep {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

// Returns whether a character controls how others are shown: U+0000 to U+001F,
// U+007F to U+009F, those that turn the direction of text, and those that can't
// be in HTML.
bool IsControl(absl::string_view character) {
  const auto byte = [character](size_t at) {
    return static_cast<unsigned char>(character[at]);
  };
  if (character.size() == 2) {
    return (byte(0) == 0xc2 && byte(1) < 0xa0) ||
           (byte(0) == 0xd8 && byte(1) == 0x9c);
  }
  if (character.size() == 1) {
    return (byte(0) < ' ' && byte(0) != '\n' && byte(0) != '\t') ||
           byte(0) == 0x7f;
  }
  if (character.size() != 3) return false;
  if (byte(0) == 0xef && byte(1) == 0xbf) return byte(2) >= 0xbe;
  if (byte(0) != 0xe2) return false;
  return (byte(1) == 0x80 && ((byte(2) >= 0xaa && byte(2) <= 0xae) ||
                              byte(2) == 0x8e || byte(2) == 0x8f)) ||
         (byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9);
}

}  // namespace

std::string WithCommas(int64_t number) {
  std::string digits = absl::StrCat(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string Counted(int64_t number, absl::string_view one,
                    absl::string_view many) {
  return absl::StrCat(WithCommas(number), " ", number == 1 ? one : many);
}

std::string SayNumber(double value) {
  if (!std::isfinite(value)) return "not known";
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 999.5 && size < 1e12) return WithCommas(std::llround(value));
  return absl::StrFormat("%.3g", value);
}

std::string Printable(absl::string_view text, size_t most) {
  std::string printable;
  size_t taken = 0;
  for (absl::string_view left = text; !left.empty();) {
    const size_t size = internal_base::SizeOfFirstUtf8(left);
    taken += std::max<size_t>(size, 1);
    if (taken > most) return printable + "\u2026";
    // The end of a line may have two characters.
    const bool ends_line = absl::StartsWith(left, "\r\n");
    if (size == 0 || (IsControl(left.substr(0, size)) && !ends_line)) {
      printable += kReplacement;
    } else if (!ends_line) {
      absl::StrAppend(&printable, left.substr(0, size));
    }
    left.remove_prefix(std::max<size_t>(size, 1));
  }
  return printable;
}

TimeUnit UnitOf(double seconds) {
  const double size = std::abs(seconds);
  if (size == 0 || !std::isfinite(size)) return {1, "s"};
  if (size < 999.5e-9) return {1e-9, "ns"};
  if (size < 999.5e-6) return {1e-6, "us"};
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

}  // namespace lockstep
