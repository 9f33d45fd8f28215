#include "lockstep/tools/cli/parts_command.h"

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

bool HasWord(const OptionInfo& option, absl::string_view word) {
  return Has(option.key, word) || Has(option.meaning, word);
}

// Returns true if a part has each word in its name, its meaning or its
// settings.
bool HasWords(const PluginPart& part, const std::vector<std::string>& words) {
  return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
    return Has(part.name, word) || Has(part.meaning, word) ||
           std::any_of(part.options.begin(), part.options.end(),
                       [&](const auto& each) { return HasWord(each, word); });
  });
}

// Prints a line for each part that was found, and the settings that have a
// word. An order and the sampler of the same name share a line.
void PrintFound(const std::vector<PluginPart>& parts,
                const std::vector<std::string>& words, std::ostream& out) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const PluginPart& part = parts[i];
    const auto same = [&part](const PluginPart& other) {
      return other.name == part.name && other.meaning == part.meaning;
    };
    const auto end = parts.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find_if(parts.begin(), end, same) != end) continue;
    out << part.kind;
    for (size_t k = i + 1; k < parts.size(); ++k) {
      if (same(parts[k])) out << ", " << parts[k].kind;
    }
    out << (part.name.empty() ? "" : " ") << part.name << "\n  " << part.meaning
        << "\n";
    for (const OptionInfo& option : part.options) {
      const bool has_word =
          std::any_of(words.begin(), words.end(),
                      [&](const auto& word) { return HasWord(option, word); });
      if (has_word) {
        out << "    " << option.key << ": " << option.meaning << "\n";
      }
    }
  }
  out << "--name=NAME prints all settings of one\n";
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
  const bool is_all =
      command.kind.empty() && command.name.empty() && command.words.empty();
  if (command.kind.empty() && command.name.empty() && !command.words.empty()) {
    // These are no parts, but a text has them, too.
    parts.push_back(
        {"job", "", "The tables of a job's text.", DescribeOptions<Job>()});
    if (host.trainer != nullptr) {
      parts.push_back({"trainer", "", "The trainer's own settings.",
                       host.trainer->Describe()});
    }
  }
  keep([&](const PluginPart& part) { return HasWords(part, command.words); });
  if (parts.empty() && !command.words.empty()) {
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return absl::NotFoundError(
        absl::StrCat("no part has the words ",
                     SayUnknown(absl::StrJoin(command.words, " "), names)));
  }
  if (format == OutputFormat::kText && !command.words.empty()) {
    PrintFound(parts, command.words, out);
    return absl::OkStatus();
  }
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
