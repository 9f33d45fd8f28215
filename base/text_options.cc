#include "lockstep/base/text_options.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lockstep/base/check.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {
namespace {

// Wide enough for every int64_t and uint64_t.
using Wide = __int128;

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 16;
}

// What a size suffix multiplies by; 0 if `c` is none.
int64_t FactorOf(char c) {
  switch (absl::ascii_tolower(static_cast<unsigned char>(c))) {
    case 'k':
      return int64_t{1} << 10;
    case 'm':
      return int64_t{1} << 20;
    case 'g':
      return int64_t{1} << 30;
    case 't':
      return int64_t{1} << 40;
    default:
      return 0;
  }
}

// An integer of the grammar, if it lies in [low, high].
std::optional<Wide> ParseInteger(absl::string_view text, Wide low, Wide high) {
  const bool negative = absl::ConsumePrefix(&text, "-");
  const bool hexadecimal =
      absl::ConsumePrefix(&text, "0x") || absl::ConsumePrefix(&text, "0X");
  Wide factor = negative ? -1 : 1;
  if (!text.empty() && FactorOf(text.back()) != 0) {
    factor *= FactorOf(text.back());
    text.remove_suffix(1);
  }
  if (text.empty()) return std::nullopt;
  const int base = hexadecimal ? 16 : 10;
  Wide value = 0;
  for (const char c : text) {
    const int digit = DigitValue(c);
    if (digit >= base) return std::nullopt;
    value = value * base + digit;
    if (value > std::numeric_limits<uint64_t>::max()) return std::nullopt;
  }
  value *= factor;
  if (value < low || value > high) return std::nullopt;
  return value;
}

// The shortest of three forms that reads back as the same number.
std::string PrintNumber(double value) {
  for (const int digits : {15, 16}) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    double back;
    if (absl::SimpleAtod(text, &back) && back == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

bool NeedsQuotes(absl::string_view text) {
  return text.empty() || text.find_first_of(",\"\\") != text.npos ||
         absl::ascii_isspace(static_cast<unsigned char>(text.front())) ||
         absl::ascii_isspace(static_cast<unsigned char>(text.back()));
}

std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

bool IsKeyCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// Reads an options text from left to right.
class Reader {
 public:
  Reader(absl::string_view what, absl::string_view text)
      : what_(what), text_(text) {
    SkipSpace();
  }

  bool AtEnd() const { return position_ == text_.size(); }
  size_t position() const { return position_; }

  absl::Status ErrorAt(size_t position, absl::string_view message) const {
    return absl::InvalidArgumentError(
        absl::StrCat(what_, ", column ", position + 1, ": ", message));
  }

  absl::StatusOr<std::string> Key() {
    const size_t begin = position_;
    while (!AtEnd() && IsKeyCharacter(text_[position_])) ++position_;
    std::string key(text_.substr(begin, position_ - begin));
    SkipSpace();
    if (key.empty() || AtEnd() || text_[position_] != ':') {
      return ErrorAt(position_, absl::StrCat("found ", Found(), " where ",
                                             key.empty() ? "a key" : "a ':'",
                                             " is due; options are written as "
                                             "key:value,key:value"));
    }
    ++position_;
    SkipSpace();
    return key;
  }

  absl::StatusOr<std::string> Value() {
    std::string value;
    if (!AtEnd() && text_[position_] == '"') {
      LOCKSTEP_ASSIGN_OR_RETURN(value, QuotedValue());
    } else {
      const size_t begin = position_;
      position_ = std::min(text_.find(',', begin), text_.size());
      value = std::string(absl::StripTrailingAsciiWhitespace(
          text_.substr(begin, position_ - begin)));
    }
    return value;
  }

  // Passes the comma after a value, which another entry must follow.
  absl::Status Comma() {
    SkipSpace();
    if (AtEnd()) return absl::OkStatus();
    if (text_[position_] != ',') {
      return ErrorAt(position_, absl::StrCat("found ", Found(),
                                             " after a quoted value, where a "
                                             "',' or the end is due"));
    }
    ++position_;
    SkipSpace();
    if (AtEnd()) return ErrorAt(position_, "found the end after a ','");
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::string> QuotedValue() {
    const size_t begin = position_++;
    std::string value;
    for (; !AtEnd(); ++position_) {
      char c = text_[position_];
      if (c == '"') {
        ++position_;
        return value;
      }
      if (c == '\\') {
        if (++position_ == text_.size()) break;
        c = text_[position_];
        if (c != '"' && c != '\\') {
          return ErrorAt(position_ - 1,
                         absl::StrCat("'\\", std::string(1, c),
                                      "' is no escape; \\\" and \\\\ are"));
        }
      }
      value += c;
    }
    return ErrorAt(begin, "this quote is never closed");
  }

  std::string Found() const {
    if (AtEnd()) return "the end";
    return absl::StrCat("'", text_.substr(position_, 1), "'");
  }

  void SkipSpace() {
    while (!AtEnd() &&
           absl::ascii_isspace(static_cast<unsigned char>(text_[position_]))) {
      ++position_;
    }
  }

  absl::string_view what_;
  absl::string_view text_;
  size_t position_ = 0;
};

}  // namespace

template <typename Integer>
void TextOptions::AddInteger(absl::string_view key, Integer* field) {
  constexpr Integer kLow = std::numeric_limits<Integer>::min();
  constexpr Integer kHigh = std::numeric_limits<Integer>::max();
  AddField({std::string(key),
            absl::StrCat("an integer from ", kLow, " to ", kHigh,
                         ", also as 64k, 1m, 2g, 1t or 0xff"),
            [field](const std::string& value) {
              const std::optional<Wide> parsed =
                  ParseInteger(value, kLow, kHigh);
              if (!parsed) return false;
              *field = static_cast<Integer>(*parsed);
              return true;
            },
            [field] { return absl::StrCat(*field); }});
}

void TextOptions::Add(absl::string_view key, int* field) {
  AddInteger(key, field);
}

void TextOptions::Add(absl::string_view key, int64_t* field) {
  AddInteger(key, field);
}

void TextOptions::Add(absl::string_view key, uint64_t* field) {
  AddInteger(key, field);
}

void TextOptions::Add(absl::string_view key, double* field) {
  AddField({std::string(key), "a finite number",
            [field](const std::string& value) {
              double parsed;
              if (!absl::SimpleAtod(value, &parsed) || !std::isfinite(parsed)) {
                return false;
              }
              *field = parsed;
              return true;
            },
            [field] { return PrintNumber(*field); }});
}

void TextOptions::Add(absl::string_view key, bool* field) {
  Add(key, field, {{"true", true}, {"false", false}});
}

void TextOptions::Add(absl::string_view key, std::string* field) {
  AddField({std::string(key), "a string",
            [field](const std::string& value) {
              *field = value;
              return true;
            },
            [field] { return *field; }});
}

void TextOptions::AddField(Field field) {
  for (const Field& other : fields_) LOCKSTEP_CHECK(other.key != field.key);
  fields_.push_back(std::move(field));
}

absl::Status TextOptions::Parse(absl::string_view text) const {
  std::vector<bool> seen(fields_.size());
  Reader reader(what_, text);
  while (!reader.AtEnd()) {
    const size_t key_at = reader.position();
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string key, reader.Key());
    const auto field =
        std::find_if(fields_.begin(), fields_.end(),
                     [&key](const Field& f) { return f.key == key; });
    if (field == fields_.end()) {
      return reader.ErrorAt(
          key_at,
          absl::StrCat("unknown key '", key, "'; known: ",
                       absl::StrJoin(fields_, ", ",
                                     [](std::string* out, const Field& f) {
                                       absl::StrAppend(out, f.key);
                                     })));
    }
    if (seen[field - fields_.begin()]) {
      return reader.ErrorAt(
          key_at, absl::StrCat("'", key, "' stands twice; give it once"));
    }
    seen[field - fields_.begin()] = true;

    const size_t value_at = reader.position();
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string value, reader.Value());
    if (!field->parse(value)) {
      return reader.ErrorAt(value_at,
                            absl::StrCat(key, " is '", value, "', but must be ",
                                         field->accepted));
    }
    LOCKSTEP_RETURN_IF_ERROR(reader.Comma());
  }
  return absl::OkStatus();
}

std::string TextOptions::ToString() const {
  return absl::StrJoin(fields_, ",", [](std::string* out, const Field& field) {
    const std::string value = field.print();
    absl::StrAppend(out, field.key, ":",
                    NeedsQuotes(value) ? Quoted(value) : value);
  });
}

}  // namespace lockstep
