#include "lockstep/plugin/part_list.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/option_table.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {
namespace {

// A bar would end the cell of a table.
std::string Cell(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}});
}

}  // namespace

std::string ListParts(absl::Span<const PluginPart> parts) {
  std::string text;
  for (const PluginPart& part : parts) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", part.kind, " ", part.name,
                    "\n  ", part.meaning, "\n");
    for (const OptionInfo& option : part.options) {
      absl::StrAppend(&text, "  ", option.key,
                      option.default_value.empty() ? " (unset)" : " = ",
                      option.default_value, "\n      ", option.meaning,
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
  for (const OptionInfo& option : options) {
    const std::string value =
        option.default_value.empty()
            ? "unset"
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
