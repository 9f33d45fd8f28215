#include "lockstep/tools/cli/parts_command.h"

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/part_list.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {
namespace {

constexpr char kAbout[] = R"(# Settings

All settings of a job's text, and of Lockstep's parts, with their defaults; `lockstep
parts` prints them, and this file is `lockstep parts --format=markdown`.
[formats.md](formats.md) says what a text looks like and how values are written.

## The job

)";

absl::Status CheckKnown(absl::string_view flag, const std::string& given,
                        std::vector<std::string> known) {
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  if (given.empty() ||
      std::find(known.begin(), known.end(), given) != known.end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no ", flag, " ", SayUnknown(given, known)));
}

}  // namespace

absl::Status RunParts(const PartsCommand& command, std::ostream& out) {
  LOCKSTEP_RETURN_IF_ERROR(
      CheckKnown("--format", command.format, {"text", "markdown"}));
  PluginRegistry registry;
  LOCKSTEP_RETURN_IF_ERROR(RegisterLockstep(registry));
  std::vector<PluginPart> parts = registry.Parts();
  std::vector<std::string> kinds;
  for (const PluginPart& part : parts) kinds.push_back(part.kind);
  LOCKSTEP_RETURN_IF_ERROR(CheckKnown("--kind", command.kind, kinds));
  const auto keep = [&parts](auto wanted) {
    parts.erase(std::remove_if(parts.begin(), parts.end(),
                               [&](const auto& part) { return !wanted(part); }),
                parts.end());
  };
  keep([&](const PluginPart& part) {
    return command.kind.empty() || part.kind == command.kind;
  });
  std::vector<std::string> names;
  for (const PluginPart& part : parts) names.push_back(part.name);
  LOCKSTEP_RETURN_IF_ERROR(CheckKnown("--name", command.name, names));
  keep([&](const PluginPart& part) {
    return command.name.empty() || part.name == command.name;
  });
  if (command.format == "text") {
    out << ListParts(parts);
  } else {
    out << kAbout << ListOptionsAsMarkdown(DescribeOptions<Job>())
        << "\n## Parts\n\n"
        << ListPartsAsMarkdown(parts);
  }
  return absl::OkStatus();
}

}  // namespace lockstep
