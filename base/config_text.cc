// The code that builds with TOML and builds without it share.
#include "lockstep/base/config_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/config.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"

namespace lockstep {
namespace {

constexpr char kExample[] = "loader.train.num_workers=4";

// Follows the only entry of each table, for at most `levels` levels, and adds
// the keys to `path`. Returns null if a table does not have exactly one entry.
const Config* FollowOnly(const Config& config, size_t levels,
                         std::vector<std::string>& path) {
  const Config* at = &config;
  for (size_t level = 0; level < levels; ++level) {
    const auto* const table = at->As<Config::Table>();
    if (table == nullptr) break;
    if (table->size() != 1) return nullptr;
    path.push_back(table->front().key);
    at = &table->front().value;
  }
  return at;
}

// Reads the keys of a path such as "loader.train.num_workers".
absl::StatusOr<std::vector<std::string>> ParsePath(absl::string_view text) {
  const absl::StatusOr<Config> config =
      ParseConfig(absl::StrCat(text, " = 0"), "");
  if (absl::IsUnimplemented(config.status())) return config.status();
  std::vector<std::string> path;
  if (config.ok() && text.find('\n') == text.npos) {
    const Config* const end = FollowOnly(*config, kMostConfigDepth, path);
    if (end != nullptr && end->As<int64_t>() != nullptr) return path;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", absl::CHexEscape(text),
      "' should be words of letters, digits, '_' and '-' with dots between, "
      "such as loader.train.num_workers"));
}

// Returns true for a number such as inf. No setting takes it as a number, but
// as a string it may be a duration.
bool IsNumberWithoutValue(const Config& value) {
  const auto* const number = value.As<double>();
  return number != nullptr && !std::isfinite(*number);
}

// Reads the value as TOML or, if it is not TOML, as a string without quotes.
Config ParseValue(absl::string_view assignment, size_t equals,
                  const std::string& location, size_t levels) {
  const absl::StatusOr<Config> parsed = ParseConfig(assignment, location);
  std::vector<std::string> path;
  const Config* const found =
      parsed.ok() ? FollowOnly(*parsed, levels, path) : nullptr;
  Config value(absl::StripAsciiWhitespace(assignment.substr(equals + 1)));
  if (found != nullptr && path.size() == levels &&
      !IsNumberWithoutValue(*found)) {
    value = *found;
  }
  value.set_location(location);
  return value;
}

}  // namespace

absl::StatusOr<Config> ReadConfigFile(const std::string& path) {
  const auto failed = [&] {
    return absl::ErrnoToStatus(
        errno,
        absl::StrCat("can't read the configuration ", path, RemedyFor(errno)));
  };
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok()) return failed();
  std::string text;
  constexpr size_t kPiece = 65536;
  while (true) {
    const size_t before = text.size();
    text.resize(before + kPiece);
    const ssize_t size = ::read(file.fd(), &text[before], kPiece);
    if (size < 0 && errno != EINTR) return failed();
    text.resize(before + (size < 0 ? 0 : size));
    // ParseConfig refuses a text that is too long.
    if (size == 0 || text.size() > size_t{kMostConfigBytes}) break;
  }
  return ParseConfig(text, path);
}

absl::Status OverrideConfig(absl::string_view assignment, Config& config,
                            absl::string_view flag) {
  const size_t equals = assignment.find('=');
  if (equals == assignment.npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", absl::CHexEscape(assignment),
                     "' should be KEY=VALUE, such as ", kExample));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> path,
                            ParsePath(assignment.substr(0, equals)));
  const std::string location =
      absl::StrCat(flag, " ", absl::StrJoin(path, "."));
  Config value = ParseValue(assignment, equals, location, path.size());
  if (!ParseConfig("value = " + value.ToString(), location).ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(location, ": the value should be text in UTF-8"));
  }
  Config* table = &config;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    Config* next = table->Find(path[i]);
    if (next == nullptr) {
      next = &table->Set(path[i], Config());
      next->set_location(location);
    }
    if (next->As<Config::Table>() == nullptr) {
      const auto end = path.begin() + static_cast<ptrdiff_t>(i) + 1;
      return absl::InvalidArgumentError(absl::StrCat(
          location, ": '", absl::StrJoin(path.begin(), end, "."),
          "' is no table of settings, but ", next->Shown(),
          next->location().empty() ? "" : ", from ", next->location()));
    }
    table = next;
  }
  table->Set(path.back(), std::move(value));
  return absl::OkStatus();
}

}  // namespace lockstep
