#include "lockstep/tools/cli/parts_command.h"

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/part_list.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/output.h"

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

bool Has(absl::string_view text, absl::string_view word) {
  return absl::StrContains(absl::AsciiStrToLower(text),
                           absl::AsciiStrToLower(word));
}

// Returns true if a part has the word in its name, its meaning or its settings.
bool HasWord(const PluginPart& part, absl::string_view word) {
  if (Has(part.name, word) || Has(part.meaning, word)) return true;
  return std::any_of(part.options.begin(), part.options.end(),
                     [word](const OptionInfo& option) {
                       return Has(option.key, word) ||
                              Has(option.meaning, word);
                     });
}

void PrintForPrograms(OutputFormat format, const std::vector<PluginPart>& parts,
                      std::ostream& out) {
  RecordTable table(
      {"kind", "name", "setting", "default", "accepted", "meaning"});
  for (const PluginPart& part : parts) {
    table.AddRow({part.kind, part.name, "", "", "", part.meaning});
    for (const OptionInfo& option : part.options) {
      table.AddRow({part.kind, part.name, option.key, option.default_value,
                    option.accepted, option.meaning});
    }
  }
  if (format == OutputFormat::kCsv) return table.PrintCsv(out);
  table.PrintJson(out);
  out << "\n";
}

}  // namespace

absl::Status RunParts(const CommandHost& host, const PartsCommand& command,
                      std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const OutputFormat format,
      ParseFormat(command.format,
                  {OutputFormat::kText, OutputFormat::kJson, OutputFormat::kCsv,
                   OutputFormat::kMarkdown}));
  std::vector<PluginPart> parts = host.registry->Parts();
  const auto keep = [&parts](auto wanted) {
    parts.erase(std::remove_if(parts.begin(), parts.end(),
                               [&](const auto& part) { return !wanted(part); }),
                parts.end());
  };
  std::vector<std::string> kinds, names;
  for (const PluginPart& part : parts) kinds.push_back(part.kind);
  LOCKSTEP_RETURN_IF_ERROR(CheckKnown("--kind", command.kind, kinds));
  keep([&](const PluginPart& part) {
    return command.kind.empty() || part.kind == command.kind;
  });
  for (const PluginPart& part : parts) names.push_back(part.name);
  LOCKSTEP_RETURN_IF_ERROR(CheckKnown("--name", command.name, names));
  keep([&](const PluginPart& part) {
    return command.name.empty() || part.name == command.name;
  });
  keep([&](const PluginPart& part) { return HasWord(part, command.word); });
  if (parts.empty() && !command.word.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no part has the word ", SayUnknown(command.word, names)));
  }
  const bool is_all =
      command.kind.empty() && command.name.empty() && command.word.empty();
  if (format == OutputFormat::kText) {
    out << ListParts(parts);
  } else if (format == OutputFormat::kMarkdown) {
    if (is_all) {
      out << kAbout << ListOptionsAsMarkdown(DescribeOptions<Job>())
          << "\n## Parts\n\n";
    }
    out << ListPartsAsMarkdown(parts);
  } else {
    PrintForPrograms(format, parts, out);
  }
  return absl::OkStatus();
}

}  // namespace lockstep
