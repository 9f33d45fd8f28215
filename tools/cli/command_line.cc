#include "lockstep/tools/cli/command_line.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {
namespace {

// Returns the name of a flag with its dashes: "-n", "--size".
std::string Dashed(absl::string_view name) {
  return absl::StrCat(name.size() == 1 ? "-" : "--", name);
}

}  // namespace

std::vector<std::string> CommandLine::Names(absl::string_view names) {
  return absl::StrSplit(names, '|');
}

CommandLine::Flag* CommandLine::Find(absl::string_view name) {
  for (Flag& flag : flags_) {
    if (std::find(flag.names.begin(), flag.names.end(), name) !=
        flag.names.end()) {
      return &flag;
    }
  }
  return nullptr;
}

absl::Status CommandLine::Set(Flag& flag, absl::string_view name,
                              absl::string_view text) {
  if (flag.given && !flag.repeated) {
    return absl::InvalidArgumentError(absl::StrCat(
        absl::StrJoin(flag.names, " or ",
                      [](std::string* out, const std::string& known) {
                        out->append(Dashed(known));
                      }),
        " is given twice; give it once"));
  }
  flag.given = true;
  if (flag.parse(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Dashed(name), " should be ", flag.type.accepted,
                   ", but got '", absl::CHexEscape(text), "'"));
}

absl::Status CommandLine::UnknownFlag(absl::string_view name) const {
  std::vector<std::string> known;
  for (const Flag& flag : flags_) {
    known.insert(known.end(), flag.names.begin(), flag.names.end());
  }
  // Other tools have a flag for each format.
  const bool is_format =
      (name == "json" || name == "csv" || name == "text") &&
      std::find(known.begin(), known.end(), "format") != known.end();
  if (is_format) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no flag ", Dashed(name), "; give --format=", name));
  }
  const std::optional<std::string> nearest = NearestWord(name, known);
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no flag ", Dashed(absl::CHexEscape(name)),
      nearest.has_value()
          ? absl::StrCat("; did you mean ", Dashed(*nearest), "?")
          : absl::StrCat(
                "; the flags of ", name_, " are ",
                absl::StrJoin(known, ", ",
                              [](std::string* out, const std::string& each) {
                                out->append(Dashed(each));
                              }))));
}

// Returns the error for a word that is no flag.
absl::Status CommandLine::NoFlag(absl::string_view word) const {
  const std::string accepted =
      words_.empty()
          ? "flags only"
          : absl::StrCat("flags and ",
                         absl::StrJoin(words_, " ",
                                       [](std::string* out, const Word& each) {
                                         out->append(each.name);
                                       }));
  return absl::InvalidArgumentError(absl::StrCat(
      "'", absl::CHexEscape(word), "' is no flag; give ", accepted,
      rest_ == nullptr ? "" : absl::StrCat(", then -- and the ", rest_name_),
      ": ", name_, " --help shows an example"));
}

absl::Status CommandLine::Parse(absl::Span<const std::string> words) {
  size_t words_given = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    absl::string_view word = words[i];
    if (word == "--" && rest_ != nullptr) {
      rest_->assign(words.begin() + i + 1, words.end());
      break;
    }
    const bool has_dash = absl::ConsumePrefix(&word, "-");
    absl::ConsumePrefix(&word, "-");
    if (!has_dash && !word.empty() && words_given < words_.size()) {
      if (words_[words_given].field == nullptr) {
        list_->push_back(words[i]);
      } else {
        *words_[words_given++].field = words[i];
      }
      continue;
    }
    if (!has_dash || word.empty()) return NoFlag(words[i]);
    const size_t equals = word.find('=');
    const std::string name =
        absl::StrReplaceAll(word.substr(0, equals), {{"-", "_"}});
    Flag* const flag = Find(name);
    if (equals != absl::string_view::npos) {
      if (flag == nullptr) return UnknownFlag(name);
      LOCKSTEP_RETURN_IF_ERROR(Set(*flag, name, word.substr(equals + 1)));
    } else if (flag == nullptr) {
      Flag* const denied =
          absl::StartsWith(name, "no") ? Find(name.substr(2)) : nullptr;
      if (denied == nullptr || !denied->type.is_bool) return UnknownFlag(name);
      LOCKSTEP_RETURN_IF_ERROR(Set(*denied, name, "false"));
    } else if (flag->type.is_bool) {
      LOCKSTEP_RETURN_IF_ERROR(Set(*flag, name, "true"));
    } else if (++i < words.size()) {
      LOCKSTEP_RETURN_IF_ERROR(Set(*flag, name, words[i]));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(Dashed(name), " should be ", flag->type.accepted,
                       ", but is the last word, without a value"));
    }
  }
  if (words_given < words_.size() && !words_[words_given].is_optional) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the word ", words_[words_given].name, ", ", words_[words_given].help,
        ", is not given: ", name_, " --help shows an example"));
  }
  return absl::OkStatus();
}

std::string CommandLine::Help() const {
  std::string help =
      absl::StrCat(name_, " ", summary_, ".\n\n", details_, "\n\n");
  if (!words_.empty()) absl::StrAppend(&help, "Words:\n");
  for (const Word& word : words_) {
    absl::StrAppend(&help, "  ", word.name,
                    word.is_optional ? " (may be left out)" : "", "\n      ",
                    absl::StrReplaceAll(word.help, {{"\n", "\n      "}}), "\n");
  }
  if (!flags_.empty()) {
    absl::StrAppend(&help, words_.empty() ? "" : "\n", "Flags:\n");
  }
  for (const Flag& flag : flags_) {
    std::string line = "  ";
    for (const std::string& name : flag.names) {
      absl::StrAppend(&line, line.size() == 2 ? "" : ", ", Dashed(name));
    }
    const absl::string_view shown = flag.type.shown;
    absl::StrAppend(&help, line, shown.empty() ? "" : "=", shown,
                    flag.shown_default, "\n      ",
                    absl::StrReplaceAll(flag.help, {{"\n", "\n      "}}), "\n");
  }
  return help;
}

}  // namespace lockstep
