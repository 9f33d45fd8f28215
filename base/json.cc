#include "lockstep/base/json.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/utf8.h"

namespace lockstep::internal_base {
namespace {

// The characters that have an escape of their own, and these escapes.
constexpr absl::string_view kMeanings = "\"\\\b\f\n\r\t";
constexpr absl::string_view kEscapes = "\"\\bfnrt";
// The number of characters of an escape such as \u001b.
constexpr size_t kOfCode = 6;

}  // namespace

void AppendJson(absl::string_view text, std::string& json) {
  json += '"';
  for (const char c : Utf8Of(text)) {
    if (const size_t found = kMeanings.find(c); found != kMeanings.npos) {
      json += '\\';
      json += kEscapes[found];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&json, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      json += c;
    }
  }
  json += '"';
}

bool JsonReader::Skip(absl::string_view expected) {
  return absl::ConsumePrefix(&left_, expected);
}

bool JsonReader::Read(std::string& text) {
  if (!absl::StartsWith(left_, "\"")) return false;
  text.clear();
  size_t at = 1;
  for (; at < left_.size() && left_[at] != '"'; ++at) {
    if (left_[at] != '\\') {
      text += left_[at];
      continue;
    }
    const absl::string_view escape = left_.substr(at, kOfCode);
    const size_t found =
        escape.size() > 1 ? kEscapes.find(escape[1]) : kEscapes.npos;
    uint32_t code = 0;
    if (found != kEscapes.npos) {
      text += kMeanings[found];
      ++at;
    } else if (escape.size() == kOfCode && absl::StartsWith(escape, "\\u00") &&
               absl::SimpleHexAtoi(escape.substr(2), &code) && code < 0x20) {
      text += static_cast<char>(code);
      at += kOfCode - 1;
    } else {
      return false;
    }
  }
  if (at >= left_.size()) return false;
  left_.remove_prefix(at + 1);
  return true;
}

// Returns the characters up to the next one that ends a number or a word.
absl::string_view JsonReader::ReadWord() {
  return left_.substr(0, left_.find_first_of(",]}"));
}

bool JsonReader::Read(int64_t& number) {
  const absl::string_view word = ReadWord();
  if (!absl::SimpleAtoi(word, &number)) return false;
  left_.remove_prefix(word.size());
  return true;
}

bool JsonReader::Read(double& number) {
  const absl::string_view word = ReadWord();
  if (!absl::SimpleAtod(word, &number) || !std::isfinite(number)) return false;
  left_.remove_prefix(word.size());
  return true;
}

bool JsonReader::Read(bool& value) {
  value = absl::StartsWith(left_, "true");
  return Skip("true") || Skip("false");
}

// Passes over a value in which values stand in each other on at most so many
// levels.
bool JsonReader::SkipValue(int levels) {
  std::string text;
  double number = 0;
  bool value = false;
  const bool is_object = absl::StartsWith(left_, "{");
  if (!Skip("{") && !Skip("[")) {
    return Skip("null") || Read(text) || Read(number) || Read(value);
  }
  const char* const end = is_object ? "}" : "]";
  if (Skip(end)) return true;
  do {
    if (is_object && !(Read(text) && Skip(":"))) return false;
    if (levels == 0 || !SkipValue(levels - 1)) return false;
  } while (Skip(","));
  return Skip(end);
}

bool JsonReader::SkipRest() {
  std::string name;
  while (Skip(",")) {
    if (!Read(name) || !Skip(":") || !SkipValue(/*levels=*/8)) return false;
  }
  return Skip("}");
}

}  // namespace lockstep::internal_base
