#include "lockstep/plugin/part_list.h"

#include <cstddef>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/option_table.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {
namespace {

// A vertical bar would end the cell of a table.
std::string Cell(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}});
}

// Returns the default value of a setting, or "" for a table whose settings
// follow it.
std::string DefaultOf(absl::Span<const OptionInfo> options, size_t i,
                      absl::string_view unset) {
  const OptionInfo& option = options[i];
  if (!option.default_value.empty()) return option.default_value;
  const bool is_table =
      i + 1 < options.size() &&
      absl::StartsWith(options[i + 1].key, absl::StrCat(option.key, "."));
  return is_table ? "" : std::string(unset);
}

}  // namespace

std::string ListParts(absl::Span<const PluginPart> parts) {
  std::string text;
  for (const PluginPart& part : parts) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", part.kind, " ", part.name,
                    "\n  ", part.meaning, "\n");
    for (size_t i = 0; i < part.options.size(); ++i) {
      const OptionInfo& option = part.options[i];
      absl::StrAppend(
          &text, "  ", option.key, option.default_value.empty() ? "" : " = ",
          DefaultOf(part.options, i, " (unset)"), "\n      ", option.meaning,
          "\n      Accepted: ", option.accepted, ".\n");
    }
  }
  return text;
}

std::string ListOptionsAsMarkdown(absl::Span<const OptionInfo> options) {
  if (options.empty()) return "";
  std::string text =
      "| setting | default | accepted | meaning |\n"
      "|---|---|---|---|\n";
  for (size_t i = 0; i < options.size(); ++i) {
    const OptionInfo& option = options[i];
    const std::string value =
        option.default_value.empty()
            ? DefaultOf(options, i, "unset")
            : absl::StrCat("`", option.default_value, "`");
    absl::StrAppend(&text, "| `", option.key, "` | ", Cell(value), " | ",
                    Cell(option.accepted), " | ", Cell(option.meaning), " |\n");
  }
  return text;
}

std::string ListPartsAsMarkdown(absl::Span<const PluginPart> parts) {
  std::string text;
  for (const PluginPart& part : parts) {
    const std::string table = ListOptionsAsMarkdown(part.options);
    absl::StrAppend(&text, text.empty() ? "" : "\n", "### ", part.kind, " `",
                    part.name, "`\n\n", part.meaning, "\n",
                    table.empty() ? "" : "\n", table);
  }
  return text;
}

}  // namespace lockstep
