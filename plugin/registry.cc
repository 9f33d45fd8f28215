#include "lockstep/plugin/registry.h"

#include <any>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/config.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/world.h"

namespace lockstep {
namespace {

constexpr size_t kMostLetters = 64;

absl::Status CheckName(absl::string_view kind, absl::string_view name) {
  bool good = !name.empty() && name.size() <= kMostLetters &&
              absl::ascii_islower(static_cast<unsigned char>(name[0]));
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    good = good && (absl::ascii_islower(letter) ||
                    absl::ascii_isdigit(letter) || c == '_');
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the name of a part of kind ", kind,
                   " should begin with a lower-case letter and have "
                   "at most ",
                   kMostLetters, " of them, digits and '_', but got '",
                   absl::CHexEscape(name.substr(0, kMostLetters)), "'"));
}

// Splits an error of TakeName into the location and the message.
ConfigError AsError(const absl::Status& status, const Config& table) {
  const Config* const name = table.Find("name");
  absl::string_view message = status.message();
  for (const Config* const at : {name, &table}) {
    if (at == nullptr || at->location().empty()) continue;
    if (absl::ConsumePrefix(&message, absl::StrCat(at->location(), ": "))) {
      return {at->location(), std::string(message), status.code()};
    }
  }
  return {table.location(), std::string(message), status.code()};
}

}  // namespace

absl::Status PluginRegistry::AddItem(Item item) {
  const Key key(item.part.kind, item.part.name);
  LOCKSTEP_RETURN_IF_ERROR(CheckName(key.first, key.second));
  const std::string what = absl::StrCat(key.first, " '", key.second, "'");
  if (item.factory == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has no factory; it was to be registered at ",
                     item.location.ToString()));
  }
  for (const OptionInfo& option : item.part.options) {
    if (option.key != "name") continue;
    return absl::InvalidArgumentError(absl::StrCat(
        what,
        " has a setting 'name', which is where a table of settings has "
        "the name of the part; give the setting another key"));
  }
  MutexLock lock(mutex_);
  const auto found = items_.find(key);
  if (found != items_.end()) {
    const Item& other = found->second;
    if (other.location.line == item.location.line &&
        absl::string_view(other.location.file) == item.location.file &&
        other.factory == item.factory) {
      return absl::OkStatus();
    }
    return absl::AlreadyExistsError(
        absl::StrCat(what, " was registered at ", other.location.ToString(),
                     ", and again at ", item.location.ToString(),
                     ": give one of them another name"));
  }
  items_.emplace(key, std::move(item));
  return absl::OkStatus();
}

PluginContext PluginRegistry::WithRanks(const PluginContext& context) {
  PluginContext resolved = context;
  const World* const world = context.world;
  if (context.rank == -1) resolved.rank = world == nullptr ? 0 : world->rank();
  if (context.world_size == -1) {
    resolved.world_size = world == nullptr ? 1 : world->size();
  }
  return resolved;
}

absl::StatusOr<const PluginRegistry::Item*> PluginRegistry::Find(
    absl::string_view kind, absl::string_view name) {
  MutexLock lock(mutex_);
  const auto found = items_.find(Key(kind, name));
  if (found == items_.end()) return Unknown(std::string(kind), name);
  return &found->second;
}

absl::Status PluginRegistry::Unknown(const std::string& kind,
                                     absl::string_view name) const {
  std::vector<std::string> names;
  for (const auto& [key, item] : items_) {
    if (key.first == kind) names.push_back(key.second);
  }
  std::string other_kind;
  for (const auto& [key, item] : items_) {
    if (key.second == name) other_kind = key.first;
  }
  std::string hint;
  if (kind == PluginKind<Sampler>::kName &&
      other_kind == PluginKind<Order>::kName) {
    hint = absl::StrCat(
        "; there is an order of that name, for {name = "
        "\"order\", order = {name = \"",
        name, "\"}}");
  } else if (!other_kind.empty()) {
    hint = absl::StrCat("; there is a part of that name, of kind ", other_kind);
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no ", kind, " ", SayUnknown(name, names),
      names.empty() ? "; was RegisterLockstep called?" : "", hint));
}

absl::StatusOr<std::pair<std::string, Config>> PluginRegistry::TakeName(
    absl::string_view kind, const Config& table,
    absl::string_view default_name) {
  const auto* const entries = table.As<Config::Table>();
  const Config default_config(default_name);
  const Config* name = table.Find("name");
  if (name == nullptr && entries != nullptr && !default_name.empty()) {
    name = &default_config;
  }
  const auto* const text = name == nullptr ? nullptr : name->As<std::string>();
  if (text == nullptr) {
    std::vector<std::string> names;
    for (const PluginPart& part : PartsOf(kind)) names.push_back(part.name);
    const auto* const word = table.As<std::string>();  // just a name
    return absl::InvalidArgumentError(
        absl::StrCat(table.location(), table.location().empty() ? "" : ": ",
                     "the settings of a part of kind ", kind,
                     " should be a table with its name, such as {name = \"",
                     word != nullptr ? *word : (names.empty() ? "x" : names[0]),
                     "\"}, but got ", table.Shown(),
                     "; known: ", absl::StrJoin(names, ", ")));
  }
  if (absl::Status found = Find(kind, *text).status(); !found.ok()) {
    return Annotate(found, name->location());
  }
  Config::Table rest = *entries;
  rest.remove_if(
      [](const Config::Entry& entry) { return entry.key == "name"; });
  Config settings(std::move(rest));
  settings.set_location(table.location());
  return std::make_pair(*text, std::move(settings));
}

std::vector<ConfigError> PluginRegistry::CheckKind(
    absl::string_view kind, const Config& table,
    absl::string_view default_name) {
  const auto named = TakeName(kind, table, default_name);
  if (!named.ok()) return {AsError(named.status(), table)};
  const absl::StatusOr<const Item*> item = Find(kind, named->first);
  if (!item.ok()) return {AsError(item.status(), table)};
  std::vector<ConfigError> errors = (*item)->check(named->second);
  for (const OptionInfo& option : (*item)->part.options) {
    if (option.part_kind.empty()) continue;
    const Config* inner = &table;
    for (const absl::string_view key : absl::StrSplit(option.key, '.')) {
      if (inner != nullptr) inner = inner->Find(key);
    }
    // An empty table stands for no part.
    if (inner == nullptr || inner->IsEmptyTable()) continue;
    const auto* const list = inner->As<Config::Array>();
    const Config::Array one = list == nullptr ? Config::Array{*inner} : *list;
    for (const Config& each : one) {
      for (ConfigError& error : CheckKind(option.part_kind, each, "")) {
        errors.push_back(std::move(error));
      }
    }
  }
  return errors;
}

std::vector<PluginPart> PluginRegistry::PartsOf(absl::string_view kind) const {
  MutexLock lock(mutex_);
  std::vector<PluginPart> parts;
  for (const auto& [key, item] : items_) {
    if (kind.empty() || key.first == kind) parts.push_back(item.part);
  }
  return parts;
}

}  // namespace lockstep
