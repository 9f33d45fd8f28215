#include "lockstep/base/json_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <system_error>  // NOLINT: std::from_chars returns std::errc
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/utf8.h"

namespace lockstep::internal_base {
namespace {

// The letters of the escapes that stand for one character, and what they mean.
constexpr absl::string_view kEscapes = "\"\\/bfnrt";
constexpr absl::string_view kMeanings = "\"\\/\b\f\n\r\t";

// Messages show at most so many bytes of a word.
constexpr size_t kMostShown = 40;

// The names of an object with more members than this are looked up in a set.
constexpr size_t kFewMembers = 16;

std::string Shown(absl::string_view word) {
  return absl::StrCat("'", absl::CHexEscape(word.substr(0, kMostShown)),
                      word.size() > kMostShown ? "..." : "", "'");
}

bool IsHighSurrogate(uint32_t code) { return code >= 0xd800 && code < 0xdc00; }
bool IsLowSurrogate(uint32_t code) { return code >= 0xdc00 && code < 0xe000; }

// Appends the character with this code in UTF-8. No surrogate is a character.
void AppendUtf8(uint32_t code, std::string& text) {
  if (code < 0x80) {
    text += static_cast<char>(code);
    return;
  }
  const int further = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  // The first byte begins with as many ones as the character has bytes.
  const uint32_t first = 0xff00U >> (further + 1) & 0xff;
  text += static_cast<char>(first | code >> 6 * further);
  for (int i = further - 1; i >= 0; --i) {
    text += static_cast<char>(0x80 | (code >> 6 * i & 0x3f));
  }
}

}  // namespace

// Reads JSON from its begin to its end. Functions called Read go past what they
// read, or set the error and return false.
// Thread-safety: thread-compatible.
class JsonParser {
 public:
  explicit JsonParser(absl::string_view json) : json_(json) {}

  absl::StatusOr<JsonValue> Parse() {
    JsonValue value;
    SkipBlanks();
    if (json_.empty()) {
      Fail(0, "the JSON is empty, and should have a value");
    } else if (ReadValue(/*levels=*/0, value)) {
      SkipBlanks();
      if (at_ == json_.size()) return value;
      Fail(at_, absl::StrCat("the JSON should end here, but ", GoesOn()));
    }
    return error_;
  }

 private:
  using Member = JsonValue::Member;

  // Keeps what is wrong at a byte.
  bool Fail(size_t at, absl::string_view what) {
    error_ = absl::InvalidArgumentError(absl::StrCat("byte ", at, ": ", what));
    return false;
  }

  bool FailExpecting(absl::string_view expected) {
    return Fail(at_, absl::StrCat("the JSON should go on with ", expected,
                                  ", but ", GoesOn()));
  }

  // Says for a message what comes next.
  std::string GoesOn() const {
    if (at_ == json_.size()) return "ends here";
    size_t end = at_;
    while (end < json_.size() && absl::ascii_isalnum(json_[end])) ++end;
    const absl::string_view word =
        json_.substr(at_, std::max(end, at_ + 1) - at_);
    return absl::StrCat("goes on with ", Shown(word));
  }

  // Returns the next byte, or 0 at the end. No JSON contains the byte 0.
  char Next() const { return at_ < json_.size() ? json_[at_] : '\0'; }

  void SkipBlanks() {
    while (Next() == ' ' || Next() == '\n' || Next() == '\t' ||
           Next() == '\r') {
      ++at_;
    }
  }

  bool Skip(char expected) {
    if (Next() != expected) return false;
    ++at_;
    return true;
  }

  // Reads a value that stands in so many objects and arrays.
  bool ReadValue(int levels, JsonValue& value) {
    switch (Next()) {
      case '{':
        return ReadObject(levels, value.value_.emplace<std::vector<Member>>());
      case '[':
        return ReadArray(levels,
                         value.value_.emplace<std::vector<JsonValue>>());
      case '"':
        return ReadText(value.value_.emplace<std::string>());
      case 't':
        value.value_ = true;
        return ReadWord("true");
      case 'f':
        value.value_ = false;
        return ReadWord("false");
      case 'n':
        return ReadWord("null");
      default:
        if (Next() != '-' && !absl::ascii_isdigit(Next())) {
          return FailExpecting("a value");
        }
        return ReadNumber(value.value_.emplace<JsonValue::Number>());
    }
  }

  bool ReadWord(absl::string_view word) {
    if (json_.substr(at_, word.size()) != word) {
      return FailExpecting(absl::StrCat("a value such as ", word));
    }
    at_ += word.size();
    return true;
  }

  // Goes past the brace or bracket that begins a value in so many others.
  bool ReadBegin(int levels) {
    if (levels == kMostJsonLevels) {
      return Fail(at_, absl::StrCat("objects and arrays may stand in each "
                                    "other on at most ",
                                    kMostJsonLevels, " levels"));
    }
    ++at_;
    SkipBlanks();
    return true;
  }

  bool ReadArray(int levels, std::vector<JsonValue>& elements) {
    if (!ReadBegin(levels)) return false;
    if (Skip(']')) return true;
    do {
      SkipBlanks();
      if (!ReadValue(levels + 1, elements.emplace_back())) return false;
      SkipBlanks();
    } while (Skip(','));
    return Skip(']') || FailExpecting("',' or ']'");
  }

  bool ReadObject(int levels, std::vector<Member>& members) {
    if (!ReadBegin(levels)) return false;
    if (Skip('}')) return true;
    std::set<std::string> names;
    do {
      SkipBlanks();
      if (Next() != '"') return FailExpecting("a name in quotes");
      const size_t begin = at_;
      std::string name;
      if (!ReadText(name)) return false;
      if (!IsNew(name, members, names)) {
        return Fail(begin, absl::StrCat("the object already has a member ",
                                        Shown(name)));
      }
      members.emplace_back().name = std::move(name);
      SkipBlanks();
      if (!Skip(':')) return FailExpecting("':' and a value");
      SkipBlanks();
      if (!ReadValue(levels + 1, members.back().value)) return false;
      SkipBlanks();
    } while (Skip(','));
    return Skip('}') || FailExpecting("',' or '}'");
  }

  // Returns true if no member has the name yet. `names` is for its use alone.
  static bool IsNew(const std::string& name, const std::vector<Member>& members,
                    std::set<std::string>& names) {
    if (members.size() < kFewMembers) {
      return std::none_of(
          members.begin(), members.end(),
          [&](const Member& member) { return member.name == name; });
    }
    if (names.empty()) {
      for (const Member& member : members) names.insert(member.name);
    }
    return names.insert(name).second;
  }

  // Reads a text in quotes.
  bool ReadText(std::string& text) {
    ++at_;  // the quote
    while (true) {
      const size_t begin = at_;
      if (!ReadPlain()) return false;
      text.append(json_.data() + begin, at_ - begin);
      if (Skip('"')) return true;
      if (!ReadEscape(text)) return false;
    }
  }

  // Reads characters of a text up to its closing quote or a backslash.
  bool ReadPlain() {
    while (at_ < json_.size()) {
      const auto c = static_cast<unsigned char>(json_[at_]);
      if (c == '"' || c == '\\') return true;
      if (c < 0x20) {
        return Fail(at_, absl::StrCat("the control character \\x",
                                      absl::Hex(c, absl::kZeroPad2),
                                      " in a text should be written as \\u00",
                                      absl::Hex(c, absl::kZeroPad2)));
      }
      const size_t size = c < 0x80 ? 1 : SizeOfFirstUtf8(json_.substr(at_));
      if (size == 0) {
        return Fail(at_, absl::StrCat("the byte \\x", absl::Hex(c),
                                      " is not part of a character in UTF-8"));
      }
      at_ += size;
    }
    return FailExpecting("the closing quote of a text");
  }

  bool ReadEscape(std::string& text) {
    const size_t begin = at_++;  // the backslash
    if (Skip('u')) return ReadCharacter(begin, text);
    const size_t found = at_ < json_.size() ? kEscapes.find(json_[at_])
                                            : absl::string_view::npos;
    if (found == absl::string_view::npos) {
      return FailExpecting("one of \" \\ / b f n r t u after a backslash");
    }
    text += kMeanings[found];
    ++at_;
    return true;
  }

  // Reads the rest of an escape of one character, which is one code or a pair
  // of surrogates. Its backslash stands at `begin`.
  bool ReadCharacter(size_t begin, std::string& text) {
    uint32_t code = 0;
    if (!ReadCode(code)) return false;
    if (IsLowSurrogate(code)) {
      return Fail(begin, absl::StrCat("\\u", absl::Hex(code),
                                      " is the second half of a character, "
                                      "and the first half is missing"));
    }
    if (IsHighSurrogate(code)) {
      const uint32_t high = code;
      const bool is_pair = Skip('\\') && Skip('u');
      if (is_pair && !ReadCode(code)) return false;
      if (!is_pair || !IsLowSurrogate(code)) {
        return Fail(begin, absl::StrCat("\\u", absl::Hex(high),
                                        " is the first half of a character, "
                                        "and the second half is missing"));
      }
      code = 0x10000 + ((high - 0xd800) << 10) + (code - 0xdc00);
    }
    AppendUtf8(code, text);
    return true;
  }

  // Reads four hexadecimal digits.
  bool ReadCode(uint32_t& code) {
    code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = absl::ascii_tolower(Next());
      if (!absl::ascii_isxdigit(c)) {
        return FailExpecting("four hexadecimal digits after \\u");
      }
      code = code << 4 | (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return true;
  }

  bool ReadDigits() {
    if (!absl::ascii_isdigit(Next())) return FailExpecting("a digit");
    while (absl::ascii_isdigit(Next())) ++at_;
    return true;
  }

  bool ReadNumber(JsonValue::Number& number) {
    const size_t begin = at_;
    const bool is_negative = Skip('-');
    const bool begins_with_0 = Next() == '0';
    const size_t first = at_;
    if (!ReadDigits()) return false;
    if (begins_with_0 && at_ > first + 1) {
      return Fail(first, "a number of several digits must not begin with 0");
    }
    bool is_integer = true;
    if (Skip('.')) {
      is_integer = false;
      if (!ReadDigits()) return false;
    }
    if (Skip('e') || Skip('E')) {
      is_integer = false;
      if (!Skip('+')) Skip('-');
      if (!ReadDigits()) return false;
    }
    const absl::string_view word = json_.substr(begin, at_ - begin);
    const char* const end = word.data() + word.size();
    int64_t integer = 0;
    if (is_integer &&
        std::from_chars(word.data(), end, integer).ec == std::errc()) {
      number.integer = integer;
      number.real = static_cast<double>(integer);
      if (integer == 0 && is_negative) number.real = -0.0;
      return true;
    }
    // Abseil reads what the standard library calls out of range: it returns 0
    // for a number that is too small, and infinity for one that is too large.
    const bool is_read =
        std::from_chars(word.data(), end, number.real).ec == std::errc() ||
        absl::SimpleAtod(word, &number.real);
    if (is_read && std::isfinite(number.real)) return true;
    return Fail(begin, absl::StrCat("the number ", Shown(word),
                                    " is too large: at most 1.797e308 fits "
                                    "into a double"));
  }

  const absl::string_view json_;
  size_t at_ = 0;  // the next byte
  absl::Status error_;
};

std::optional<bool> JsonValue::boolean() const {
  const bool* const value = std::get_if<bool>(&value_);
  return value == nullptr ? std::nullopt : std::optional<bool>(*value);
}

std::optional<double> JsonValue::number() const {
  const Number* const number = std::get_if<Number>(&value_);
  return number == nullptr ? std::nullopt : std::optional<double>(number->real);
}

std::optional<int64_t> JsonValue::integer() const {
  const Number* const number = std::get_if<Number>(&value_);
  return number == nullptr ? std::nullopt : number->integer;
}

const std::string* JsonValue::text() const {
  return std::get_if<std::string>(&value_);
}

absl::Span<const JsonValue> JsonValue::elements() const {
  const auto* const elements = std::get_if<std::vector<JsonValue>>(&value_);
  if (elements == nullptr) return {};
  return *elements;
}

absl::Span<const JsonValue::Member> JsonValue::members() const {
  const auto* const members = std::get_if<std::vector<Member>>(&value_);
  if (members == nullptr) return {};
  return *members;
}

const JsonValue* JsonValue::Find(absl::string_view name) const {
  for (const Member& member : members()) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

absl::StatusOr<JsonValue> ParseJson(absl::string_view text) {
  return JsonParser(text).Parse();
}

}  // namespace lockstep::internal_base
