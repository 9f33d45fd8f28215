#include "lockstep/base/config.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace lockstep {
namespace {

constexpr size_t kMostShown = 200;

// Returns the shortest of three forms that reads back as the same number. Adds
// ".0" if it looks like an integer.
std::string NumberText(double value) {
  std::string text;
  for (const int digits : {15, 16, 17}) {
    text = absl::StrFormat("%.*g", digits, value);
    double back;
    if (absl::SimpleAtod(text, &back) && back == value) break;
  }
  const bool is_plain = text.find_first_not_of("-0123456789") == text.npos;
  return is_plain ? text + ".0" : text;
}

// Returns `text` in quotes, with the escapes of TOML.
std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&out, "\\u%04x", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string KeyText(absl::string_view key) {
  bool bare = !key.empty();
  for (const char c : key) {
    bare = bare && (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                    c == '_' || c == '-');
  }
  return bare ? std::string(key) : Quoted(key);
}

// Joins "loader.train" and "num_workers" to "loader.train.num_workers".
std::string PathText(const std::string& path, absl::string_view key) {
  return absl::StrCat(path, path.empty() ? "" : ".", KeyText(key));
}

void AddValues(const Config& config, const std::string& path,
               std::map<std::string, std::string>& values) {
  const auto* const table = config.As<Config::Table>();
  if (table == nullptr || (table->empty() && !path.empty())) {
    values[path] = config.ToString();
    return;
  }
  for (const auto& [key, value] : *table) {
    AddValues(value, PathText(path, key), values);
  }
}

// `header` is the path of the table, such as "loader.train".
void AppendDocument(const Config& config, const std::string& header,
                    std::string& text) {
  const auto* const table = config.As<Config::Table>();
  if (table == nullptr) return;
  for (const auto& [key, value] : *table) {
    if (value.As<Config::Table>() != nullptr) continue;
    absl::StrAppend(&text, KeyText(key), " = ", value.ToString(), "\n");
  }
  for (const auto& [key, value] : *table) {
    if (value.As<Config::Table>() == nullptr) continue;
    const std::string inner = PathText(header, key);
    absl::StrAppend(&text, text.empty() ? "" : "\n", "[", inner, "]\n");
    AppendDocument(value, inner, text);
  }
}

// Prints a value as TOML.
// Thread-safety: thread-safe.
struct Printer {
  std::string operator()(const Config::Table& table) const {
    if (table.empty()) return "{}";
    return absl::StrCat(
        "{",
        absl::StrJoin(table, ", ",
                      [](std::string* out, const Config::Entry& entry) {
                        absl::StrAppend(out, KeyText(entry.key), " = ",
                                        entry.value.ToString());
                      }),
        "}");
  }
  std::string operator()(const Config::Array& array) const {
    return absl::StrCat("[",
                        absl::StrJoin(array, ", ",
                                      [](std::string* out, const Config& each) {
                                        out->append(each.ToString());
                                      }),
                        "]");
  }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return absl::StrCat(value); }
  std::string operator()(double value) const { return NumberText(value); }
  std::string operator()(const std::string& value) const {
    return Quoted(value);
  }
};

// Returns the line and the column of a location such as "job.toml:12:5". Places
// that are not in a text come last.
std::pair<int64_t, int64_t> PlaceOf(absl::string_view location) {
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  const std::vector<absl::string_view> words = absl::StrSplit(location, ':');
  std::pair<int64_t, int64_t> place;
  if (words.size() < 3 ||
      !absl::SimpleAtoi(words[words.size() - 2], &place.first) ||
      !absl::SimpleAtoi(words.back(), &place.second)) {
    return {kLast, kLast};
  }
  return place;
}

}  // namespace

Config::Config() = default;
Config::Config(double value) : value_(value) {}
Config::Config(const char* value)
    : value_(std::string(value == nullptr ? "" : value)) {}
Config::Config(absl::string_view value) : value_(std::string(value)) {}
Config::Config(std::string value) : value_(std::move(value)) {}
Config::Config(Array values) : value_(std::move(values)) {}
Config::Config(Table entries) : value_(std::move(entries)) {}
Config::~Config() = default;
Config::Config(const Config& other) = default;
Config::Config(Config&& other) noexcept = default;

// `other` may be a value inside this one, so it is copied first.
Config& Config::operator=(const Config& other) { return *this = Config(other); }

Config& Config::operator=(Config&& other) noexcept {
  Config moved(std::move(other));
  value_.swap(moved.value_);
  location_.swap(moved.location_);
  return *this;
}

bool Config::IsEmptyTable() const {
  const auto* const table = As<Table>();
  return table != nullptr && table->empty();
}

const Config* Config::Find(absl::string_view key) const {
  const auto* const table = As<Table>();
  if (table == nullptr) return nullptr;
  for (const Entry& entry : *table) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

Config* Config::Find(absl::string_view key) {
  return const_cast<Config*>(std::as_const(*this).Find(key));
}

Config& Config::Set(absl::string_view key, Config value) {
  if (!std::holds_alternative<Table>(value_)) value_ = Table();
  auto& table = std::get<Table>(value_);
  for (Entry& entry : table) {
    if (entry.key == key) return entry.value = std::move(value);
  }
  table.push_back({std::string(key), std::move(value)});
  return table.back().value;
}

std::string Config::Shown() const {
  std::string text = ToString();
  if (text.size() <= kMostShown) return text;
  return absl::StrCat(text.substr(0, kMostShown), "...");
}

std::map<std::string, std::string> Config::Values() const {
  std::map<std::string, std::string> values;
  AddValues(*this, "", values);
  return values;
}

std::string Config::ToText() const {
  std::string text;
  AppendDocument(*this, "", text);
  return text;
}

std::string Config::ToString() const { return std::visit(Printer(), value_); }

void SortByLocation(std::vector<ConfigError>& errors) {
  std::stable_sort(errors.begin(), errors.end(),
                   [](const ConfigError& a, const ConfigError& b) {
                     return PlaceOf(a.location) < PlaceOf(b.location);
                   });
}

absl::Status ConfigError::ToStatus() const {
  return absl::Status(
      code, absl::StrCat(location, location.empty() ? "" : ": ", message));
}

}  // namespace lockstep
