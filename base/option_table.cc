#include "lockstep/base/option_table.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/config.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {
namespace {

// Returns the power of two that the suffix of a size stands for, or 0 if it is
// no suffix.
int ShiftOf(char suffix) {
  switch (absl::ascii_tolower(static_cast<unsigned char>(suffix))) {
    case 'k':
      return 10;
    case 'm':
      return 20;
    case 'g':
      return 30;
    case 't':
      return 40;
    default:
      return 0;
  }
}

bool ReadSize(const Config& config, int64_t* value) {
  const auto* const text = config.As<std::string>();
  if (text == nullptr) {
    return internal_base::ReadOption(config, value) && *value >= 0;
  }
  const int shift = text->empty() ? 0 : ShiftOf(text->back());
  int64_t number = 0;
  if (shift == 0 ||
      !absl::SimpleAtoi(text->substr(0, text->size() - 1), &number) ||
      number < 0 || number > std::numeric_limits<int64_t>::max() >> shift) {
    return false;
  }
  *value = number << shift;
  return true;
}

// Writes a size in the largest unit of which it is a whole number.
Config WriteSize(int64_t value) {
  for (const char suffix : {'t', 'g', 'm', 'k'}) {
    const int shift = ShiftOf(suffix);
    if (value > 0 && value % (int64_t{1} << shift) == 0) {
      return absl::StrCat(value >> shift, std::string(1, suffix));
    }
  }
  return value;
}

// Returns advice on quotes if a string is accepted, but `value` is a number or
// a bool. A shell removes plain quotes, so a command line needs quotes within
// quotes.
std::string Remedy(absl::string_view accepted, const Config& value) {
  const bool is_text = value.As<std::string>() != nullptr;
  const bool is_single = value.As<Config::Table>() == nullptr &&
                         value.As<Config::Array>() == nullptr;
  const bool wants_text = accepted == internal_base::OptionAccepts(
                                          static_cast<std::string*>(nullptr));
  if (!wants_text || is_text || !is_single) return "";
  const std::pair<std::string, std::string> flag_and_key =
      absl::StrSplit(value.location(), absl::MaxSplits(' ', 1));
  const auto& [flag, key] = flag_and_key;
  if (absl::StartsWith(flag, "--")) {
    return absl::StrCat("; write ", flag, " '", key, "=\"", value.ToString(),
                        "\"'");
  }
  return absl::StrCat("; in quotes it is one: \"", value.ToString(), "\"");
}

}  // namespace

void OptionTable::AddSize(absl::string_view key, int64_t* field,
                          absl::string_view meaning) {
  AddField({std::string(key),
            "an integer from 0 on, or a string with a unit of 1024, such as "
            "\"64k\", \"16m\" or \"2g\"",
            std::string(meaning),
            [field](const Config& config) { return ReadSize(config, field); },
            [field] { return WriteSize(*field); }, nullptr});
}

void OptionTable::AddField(Field field) {
  bool good = !field.key.empty();
  for (const char c : field.key) {
    const auto letter = static_cast<unsigned char>(c);
    good = good && (absl::ascii_islower(letter) ||
                    absl::ascii_isdigit(letter) || c == '_');
  }
  if (!good) {
    status_.Update(absl::InvalidArgumentError(
        absl::StrCat("BindOptions has a key '", absl::CHexEscape(field.key),
                     "', and keys have lower-case letters, digits and '_'")));
  }
  for (const Field& other : fields_) {
    if (other.key != field.key) continue;
    status_.Update(absl::InvalidArgumentError(
        absl::StrCat("BindOptions has the key '", field.key, "' twice")));
  }
  if (field.table != nullptr) status_.Update(field.table().status());
  fields_.push_back(std::move(field));
}

absl::Status OptionTable::Read(absl::string_view what,
                               const Config& config) const {
  LOCKSTEP_RETURN_IF_ERROR(status_);
  const std::vector<ConfigError> errors = ReadAll(what, config);
  return errors.empty() ? absl::OkStatus() : errors[0].ToStatus();
}

std::vector<ConfigError> OptionTable::ReadAll(absl::string_view what,
                                              const Config& config) const {
  std::vector<ConfigError> errors;
  const auto wrong = [&](const Config& at, absl::string_view message) {
    errors.push_back({at.location(), absl::StrCat(what, ": ", message)});
  };
  if (!status_.ok()) {
    errors.push_back({"", std::string(status_.message()), status_.code()});
    return errors;
  }
  const auto* const table = config.As<Config::Table>();
  if (table == nullptr) {
    wrong(config, absl::StrCat("should be a table of settings, but is ",
                               config.Shown()));
    return errors;
  }
  std::vector<std::string> keys;
  for (const Field& field : fields_) keys.push_back(field.key);
  for (const auto& [key, value] : *table) {
    const auto found = std::find(keys.begin(), keys.end(), key);
    if (found == keys.end()) {
      wrong(value, NoSetting(key, keys));
      continue;
    }
    const Field& field = fields_[found - keys.begin()];
    if (field.table != nullptr) {
      for (ConfigError& error :
           field.table().ReadAll(absl::StrCat(what, ", ", key), value)) {
        errors.push_back(std::move(error));
      }
    } else if (field.read_list != nullptr && value.As<Config::Array>()) {
      field.read_list(absl::StrCat(what, ", ", key), value, errors);
    } else if (field.read == nullptr || !field.read(value)) {
      wrong(value,
            absl::StrCat(key, " should be ", field.accepted, ", but got ", key,
                         " = ", value.Shown(), Remedy(field.accepted, value)));
    }
  }
  return errors;
}

std::string OptionTable::NoSetting(const std::string& key,
                                   const std::vector<std::string>& keys) const {
  for (const auto& [word, where] : hints_) {
    if (word != key) continue;
    return absl::StrCat("there is no setting '", key, "': ", where);
  }
  return absl::StrCat("there is no setting ", SayUnknown(key, keys));
}

Config OptionTable::Write() const {
  Config config;
  for (const Field& field : fields_) {
    std::optional<Config> value =
        field.table != nullptr ? field.table().Write() : field.write();
    if (value.has_value()) config.Set(field.key, *std::move(value));
  }
  return config;
}

std::vector<OptionInfo> OptionTable::Describe() const {
  std::vector<OptionInfo> infos;
  for (const Field& field : fields_) {
    if (field.table != nullptr) {
      infos.push_back({field.key, field.accepted, "", field.meaning});
      for (OptionInfo& info : field.table().Describe()) {
        info.key = absl::StrCat(field.key, ".", info.key);
        infos.push_back(std::move(info));
      }
      continue;
    }
    const std::optional<Config> value = field.write();
    infos.push_back({field.key, field.accepted,
                     value.has_value() ? value->ToString() : "", field.meaning,
                     field.part_kind});
  }
  return infos;
}

}  // namespace lockstep
