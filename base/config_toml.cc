// This is the only file that includes toml++, which has all its code in
// headers.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {
namespace {

// Thrown in place of toml++'s assertions, so that a text can't end the process.
// Some texts violate these assertions ("[[[1]]]", up to version 3.4).
struct TomlGaveUp {};

[[noreturn]] void GiveUp() { throw TomlGaveUp(); }

}  // namespace
}  // namespace lockstep

// The namespace of toml++ is renamed here. A program may include toml++ too,
// with other options, and the linker would use one of the two copies for both.
// NDEBUG is undefined because with it, toml++ would assume that its assertions
// hold.
#undef TOML_ASSERT
#undef TOML_EXCEPTIONS
#undef TOML_HEADER_ONLY
#define toml lockstep_toml
#define TOML_HEADER_ONLY 1
#define TOML_ASSERT(condition) \
  (static_cast<bool>(condition) ? void() : ::lockstep::GiveUp())
#define TOML_EXCEPTIONS 0
#undef NDEBUG
#include "toml.hpp"

namespace lockstep {
namespace {

constexpr char kTooDeep[] =
    "there are more than 64 tables and arrays within each other";
static_assert(kMostConfigDepth == 64);

constexpr char kNoEscape[] =
    "a backslash can't be before a letter other than a to z, nor at the end of "
    "a line before one";

// Finds two kinds of mistakes that toml++ does not survive. The first is tables
// and arrays that are nested so deep that they use up the stack: toml++ counts
// brackets, but not the dots of keys. The second is letters beyond ASCII that
// are outside of strings and comments or behind a backslash: up to version 3.4,
// toml++ assumes that some of these can't occur. The search stops at the first
// mistake, because behind it strings can't be told from words.
// Thread-safety: thread-compatible.
class Precheck {
 public:
  // Requires: `text` has no byte order mark.
  explicit Precheck(absl::string_view text) : text_(text) {}

  // Returns what is wrong, or "". Line() then returns the line of the mistake.
  std::string FindWrong() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        if (in_word_) return "this is not TOML: a quote is in a word";
        if (!SkipString(c)) return kNoEscape;
      } else if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size()) - 1;
      } else if (IsBeyondAscii(c)) {
        return "this is not TOML: letters other than a to z belong in quotes";
      } else {
        Take(c);
      }
      if (depth_ + dots_ > kMostConfigDepth) return kTooDeep;
    }
    return "";
  }

  int64_t Line() const {
    return 1 + std::count(text_.begin(), text_.begin() + at_, '\n');
  }

 private:
  struct Bracket {
    bool is_table;
    int64_t depth;  // the levels that it adds
  };

  // Processes a letter that is outside of strings and comments.
  void Take(char c) {
    // toml++ looks for the end of a value before it checks the value's letters.
    const bool was_in_value = in_word_ && in_value_;
    in_word_ = false;
    switch (c) {
      case '[':
      case '{':
        in_word_ = was_in_value;
        open_.push_back({c == '{', dots_ + 1});
        depth_ += dots_ + 1;
        dots_ = 0;
        in_value_ = in_value_ && c == '[';
        return;
      case ']':
      case '}':
        if (!open_.empty()) {
          depth_ -= open_.back().depth;
          open_.pop_back();
        }
        dots_ = 0;
        in_word_ = true;
        return;
      case ',':
        dots_ = 0;
        in_value_ = !open_.empty() && !open_.back().is_table;
        return;
      case '\n':
        dots_ = 0;
        in_value_ = in_value_ && !open_.empty();
        return;
      case '=':
        in_word_ = in_value_;
        in_value_ = true;
        return;
      case '.':
        ++dots_;
        in_word_ = in_value_;
        return;
      case ' ':
      case '\t':
      case '\r':
        return;
      default:
        in_word_ = true;
    }
  }

  // Moves to the last quote of the string that begins here. Returns false if a
  // letter beyond ASCII follows a backslash, directly or after blanks and line
  // ends.
  bool SkipString(char quote) {
    const std::string three(3, quote);
    const bool is_long = Sees(three);
    at_ += is_long ? 3 : 1;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (is_long ? Sees(three) : c == quote || c == '\n') break;
      const bool escapes = c == '\\' && quote == '"';
      if (escapes) {
        const size_t next = text_.find_first_not_of(" \t\r\n", at_ + 1);
        if (next != text_.npos && IsBeyondAscii(text_[next])) return false;
      }
      at_ += escapes ? 2 : 1;
    }
    if (is_long) {
      // Up to two more quotes belong to the string.
      at_ += 3;
      for (int i = 0; i < 2 && Sees(three.substr(2)); ++i) ++at_;
      --at_;
    }
    at_ = std::min(at_, text_.size() - 1);
    in_word_ = true;
    return true;
  }

  static bool IsBeyondAscii(char c) {
    return static_cast<unsigned char>(c) >= 0x80;
  }

  bool Sees(absl::string_view next) const {
    return absl::StartsWith(absl::ClippedSubstr(text_, at_), next);
  }

  const absl::string_view text_;
  size_t at_ = 0;
  std::vector<Bracket> open_;
  int64_t depth_ = 0;      // of all open brackets together
  int64_t dots_ = 0;       // in the key that is being read
  bool in_value_ = false;  // inside a value, not a key
  bool in_word_ = false;   // where no string may begin
};

constexpr size_t kMostKeyBytes = 128;

std::string LocationText(absl::string_view file,
                         const toml::source_position& at) {
  return absl::StrCat(file, ":", at.line, ":", at.column);
}

absl::StatusOr<Config> Convert(const toml::node& node, absl::string_view file,
                               const toml::source_position& position,
                               int64_t depth);

absl::StatusOr<Config> ConvertTable(const toml::table& table,
                                    absl::string_view file, int64_t depth) {
  struct Item {
    toml::source_position position;
    std::string key;
    const toml::node* value;
  };
  // toml++ sorts the entries by key; this restores the order of the text.
  std::vector<Item> items;
  for (const auto& [key, value] : table) {
    if (key.length() > kMostKeyBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(LocationText(file, key.source().begin), ": a key has ",
                       kMostKeyBytes, " bytes at most"));
    }
    items.push_back({key.source().begin, std::string(key.str()), &value});
  }
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return a.position < b.position;
  });
  Config::Table entries;
  for (Item& item : items) {
    LOCKSTEP_ASSIGN_OR_RETURN(Config value,
                              Convert(*item.value, file, item.position, depth));
    entries.push_back({std::move(item.key), std::move(value)});
  }
  return Config(std::move(entries));
}

absl::StatusOr<Config> ConvertArray(const toml::array& array,
                                    absl::string_view file, int64_t depth) {
  Config::Array values;
  for (const toml::node& value : array) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        Config converted, Convert(value, file, value.source().begin, depth));
    values.push_back(std::move(converted));
  }
  return Config(std::move(values));
}

absl::StatusOr<Config> ConvertValue(const toml::node& node,
                                    absl::string_view file,
                                    const toml::source_position& position,
                                    int64_t depth) {
  // A header and the keys below it may be too deep only when taken together.
  if (depth > kMostConfigDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat(LocationText(file, position), ": ", kTooDeep));
  }
  if (const auto* const table = node.as_table()) {
    return ConvertTable(*table, file, depth + 1);
  }
  if (const auto* const array = node.as_array()) {
    return ConvertArray(*array, file, depth + 1);
  }
  if (const auto* const text = node.as_string()) return Config(text->get());
  if (const auto* const integer = node.as_integer()) {
    return Config(integer->get());
  }
  if (const auto* const number = node.as_floating_point()) {
    return Config(number->get());
  }
  if (const auto* const boolean = node.as_boolean()) {
    return Config(boolean->get());
  }
  return absl::InvalidArgumentError(
      absl::StrCat(LocationText(file, position),
                   ": a date or a time is no setting; put it in quotes"));
}

absl::StatusOr<Config> Convert(const toml::node& node, absl::string_view file,
                               const toml::source_position& position,
                               int64_t depth) {
  LOCKSTEP_ASSIGN_OR_RETURN(Config config,
                            ConvertValue(node, file, position, depth));
  config.set_location(LocationText(file, position));
  return config;
}

absl::StatusOr<Config> Parse(absl::string_view text, absl::string_view file) {
  if (text.size() > size_t{kMostConfigBytes}) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": a configuration has ", kMostConfigBytes,
                     " bytes at most; is this one?"));
  }
  absl::ConsumePrefix(&text, "\xef\xbb\xbf");  // the byte order mark
  Precheck precheck(text);
  if (const std::string wrong = precheck.FindWrong(); !wrong.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ":", precheck.Line(), ": ", wrong));
  }
  const toml::parse_result parsed =
      toml::parse(std::string_view(text.data(), text.size()));
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    std::string description(error.description());
    if (absl::StrContains(description, "boolean")) {
      description += "; a text is in quotes, and true is in small letters";
    }
    return absl::InvalidArgumentError(absl::StrCat(
        LocationText(file, error.source().begin), ": this is not TOML: ",
        absl::StrReplaceAll(absl::CHexEscape(description),
                            {{"\\'", "'"}, {"\\\\", "\\"}})));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(Config config,
                            ConvertTable(parsed.table(), file, /*depth=*/1));
  config.set_location(std::string(file));
  return config;
}

}  // namespace

absl::StatusOr<Config> ParseConfig(absl::string_view text,
                                   absl::string_view file) {
  return CatchAll("the reader of TOML", [&]() -> absl::StatusOr<Config> {
    try {
      return Parse(text, file);
    } catch (const TomlGaveUp&) {
      return absl::InvalidArgumentError(absl::StrCat(
          file,
          ": this is not TOML, in a way that its reader can't place; are "
          "all brackets and quotes in pairs?"));
    }
  });
}

}  // namespace lockstep
