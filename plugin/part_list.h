// Lists parts of a registry with their settings, for a program that shows its
// users what a configuration may contain:
//
//   std::fputs(ListParts(registry.Parts()).c_str(), stdout);
//
//   sampler stratified
//     A shuffle in which each batch has each class in proportion.
//     labels = "label"
//         The column of the dataset that has the class of each sample.
//         Accepted: a string.
#ifndef LOCKSTEP_PLUGIN_PART_LIST_H_
#define LOCKSTEP_PLUGIN_PART_LIST_H_

#include <string>

#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/base/option_table.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {

// Returns a text with a blank line between parts.
std::string ListParts(absl::Span<const PluginPart> parts);

// Returns sections of a Markdown document, with a table of settings for each
// part.
std::string ListPartsAsMarkdown(absl::Span<const PluginPart> parts);

// Returns only the table, for settings that belong to no part, or "" if there
// are none.
std::string ListOptionsAsMarkdown(absl::Span<const OptionInfo> options);

}  // namespace lockstep

#endif  // LOCKSTEP_PLUGIN_PART_LIST_H_
