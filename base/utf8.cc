#include "lockstep/base/utf8.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep::internal_base {

size_t SizeOfFirstUtf8(absl::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? uint32_t{static_cast<unsigned char>(text[i])} : 0;
  };
  const uint32_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  // Each further byte begins with the bits 10, and adds 6 bits.
  uint32_t code = first & (0x7fU >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  // Only the shortest form of a character is valid, and surrogates are not.
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_half = code >= 0xd800 && code < 0xe000;
  const bool is_one =
      first >= 0xc0 && first < 0xf8 && code >= kLeast[size] && code < 0x110000;
  return is_one && !is_half ? size : 0;
}

std::string Utf8Of(absl::string_view text) {
  const bool is_ascii = std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x80;
  });
  if (is_ascii) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const size_t size = SizeOfFirstUtf8(text);
    absl::StrAppend(&out, size == 0 ? "\xef\xbf\xbd" : text.substr(0, size));
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return out;
}

}  // namespace lockstep::internal_base
