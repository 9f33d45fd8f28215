#include "lockstep/loader/datasets/json_number.h"

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace lockstep::internal_loader {
namespace {

constexpr int kMostNested = 100;

// Reads a text from its begin to its end. Each function goes past what it
// reads, and returns false at something else. Thread-safety: thread-compatible.
class Scan {
 public:
  Scan(absl::string_view text, absl::string_view key)
      : text_(text), path_(absl::StrSplit(key, '.')) {}

  bool Read() {
    return ReadValue(/*matched=*/0, /*nested=*/0) && SkipBlanks() &&
           at_ == text_.size();
  }

  size_t at() const { return at_; }

  // The value at the key: its kind, "" if there is none, and its word.
  absl::string_view kind() const { return kind_; }
  absl::string_view word() const { return word_; }

 private:
  // Means that a value does not lie on the way to the key.
  static constexpr size_t kNot = static_cast<size_t>(-1);

  bool SkipBlanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' ||
                                  text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
    return true;
  }

  bool Skip(absl::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }

  bool SkipDigits() {
    const size_t begin = at_;
    while (at_ < text_.size() && absl::ascii_isdigit(text_[at_])) ++at_;
    return at_ > begin;
  }

  // Reads a value to which the first `matched` keys have led, within `nested`
  // objects and lists.
  bool ReadValue(size_t matched, int nested) {
    SkipBlanks();
    if (at_ == text_.size()) return false;
    if (nested == kMostNested && (text_[at_] == '{' || text_[at_] == '[')) {
      return false;
    }
    const size_t begin = at_;
    const bool is_it = matched == path_.size();
    const auto found = [&](absl::string_view kind) {
      if (!is_it) return true;
      kind_ = kind;
      word_ = text_.substr(begin, at_ - begin);
      return true;
    };
    switch (text_[at_]) {
      case '{':
        return ReadObject(is_it ? kNot : matched, nested) && found("an object");
      case '[':
        return ReadList(nested) && found("a list");
      case '"': {
        absl::string_view text;
        return ReadString(text) && found("a text");
      }
      case 'n':
        return Skip("null") && found("null");
      case 't':
        return Skip("true") && found("a number");
      case 'f':
        return Skip("false") && found("a number");
      default:
        return ReadNumber() && found("a number");
    }
  }

  bool ReadObject(size_t matched, int nested) {
    Skip("{");
    SkipBlanks();
    if (Skip("}")) return true;
    do {
      SkipBlanks();
      absl::string_view key;
      if (!ReadString(key) || !SkipBlanks() || !Skip(":")) return false;
      const bool leads = matched != kNot && key == path_[matched];
      // An earlier value of this key does not count.
      if (leads) kind_ = "";
      if (!ReadValue(leads ? matched + 1 : kNot, nested + 1)) return false;
      SkipBlanks();
    } while (Skip(","));
    return Skip("}");
  }

  bool ReadList(int nested) {
    Skip("[");
    SkipBlanks();
    if (Skip("]")) return true;
    do {
      if (!ReadValue(kNot, nested + 1)) return false;
      SkipBlanks();
    } while (Skip(","));
    return Skip("]");
  }

  // Sets `text` to what stands between the quotes.
  bool ReadString(absl::string_view& text) {
    if (!Skip("\"")) return false;
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < ' ') return false;
      if (text_[at_++] == '\\' && !SkipEscape()) return false;
    }
    text = text_.substr(begin, at_ - begin);
    return Skip("\"");
  }

  bool SkipEscape() {
    if (at_ == text_.size()) return false;
    const char c = text_[at_++];
    if (c != 'u') {
      return absl::string_view("\"\\/bfnrt").find(c) != absl::string_view::npos;
    }
    for (int i = 0; i < 4; ++i) {
      if (at_ == text_.size() || !absl::ascii_isxdigit(text_[at_++])) {
        return false;
      }
    }
    return true;
  }

  bool ReadNumber() {
    if (Skip("NaN")) return true;
    Skip("-");
    if (Skip("Infinity")) return true;
    if (!Skip("0") && !SkipDigits()) return false;
    if (Skip(".") && !SkipDigits()) return false;
    if (!Skip("e") && !Skip("E")) return true;
    if (!Skip("+")) Skip("-");
    return SkipDigits();
  }

  const absl::string_view text_;
  const std::vector<absl::string_view> path_;
  size_t at_ = 0;
  absl::string_view kind_;
  absl::string_view word_;
};

}  // namespace

absl::StatusOr<absl::string_view> FindJsonNumber(absl::string_view text,
                                                 absl::string_view key) {
  Scan scan(text, key);
  if (!scan.Read()) {
    return absl::DataLossError(
        absl::StrCat("it is no JSON from byte ", scan.at(), " on"));
  }
  if (scan.kind().empty() || scan.kind() == "null") {
    return absl::NotFoundError(
        absl::StrCat("its JSON has no value at '", absl::CHexEscape(key), "'"));
  }
  if (scan.kind() != "a number") {
    return absl::DataLossError(absl::StrCat("its JSON has ", scan.kind(),
                                            " at '", absl::CHexEscape(key),
                                            "', and should have a number"));
  }
  return scan.word();
}

}  // namespace lockstep::internal_loader
