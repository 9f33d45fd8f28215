#include "lockstep/checkpoint/checkpoint_text.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/checkpoint/checkpoint_file.h"

namespace lockstep::internal_checkpoint {
namespace {

struct Setting {
  std::string digest;
  std::string shown;
};

std::map<std::string, Setting> SettingsOf(absl::string_view text) {
  std::map<std::string, Setting> settings;
  for (const absl::string_view line :
       absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, '\t');
    // Earlier releases also saved the path, which changes no result.
    if (words.size() != 3 || words[0] == "checkpoint.path") continue;
    // A fingerprint contains only short values as text.
    settings[words[0]] = {words[1],
                          words[2].empty() ? "a long value" : words[2]};
  }
  return settings;
}

}  // namespace

std::string InALine(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\t", "\\t"}, {"\n", "\\n"}});
}

// ---- The settings of a job.

std::string TextOf(const Fingerprint& job) {
  std::string text;
  for (const Fingerprint::Field& field : job.fields()) {
    // The text in `shown` is always printable.
    absl::StrAppend(&text, InALine(field.name), "\t",
                    absl::Hex(field.digest, absl::kZeroPad16), "\t",
                    field.shown, "\n");
  }
  return text;
}

std::vector<std::string> Differences(absl::string_view before,
                                     absl::string_view now) {
  const std::map<std::string, Setting> old = SettingsOf(before);
  const std::map<std::string, Setting> present = SettingsOf(now);
  std::vector<std::string> differences;
  for (const auto& [name, setting] : present) {
    const auto was = old.find(name);
    if (was == old.end()) {
      differences.push_back(
          absl::StrCat(name, " was not set, and is ", setting.shown));
    } else if (was->second.digest != setting.digest) {
      differences.push_back(absl::StrCat(name, " was ", was->second.shown,
                                         ", and is ", setting.shown));
    }
  }
  for (const auto& [name, setting] : old) {
    if (present.count(name) > 0) continue;
    differences.push_back(
        absl::StrCat(name, " was ", setting.shown, ", and is not set"));
  }
  return differences;
}

// ---- The sections of a file.

std::string TextOf(absl::Span<const CheckpointSection> sections) {
  std::string text;
  for (const CheckpointSection& section : sections) {
    absl::StrAppend(
        &text, section.version, "\t",
        section.dtype.has_value() ? static_cast<int>(*section.dtype) : 0, "\t",
        section.bytes, "\t", section.offset, "\t",
        absl::CHexEscape(section.name), "\n");
  }
  return text;
}

absl::StatusOr<std::vector<CheckpointSection>> SectionsOf(
    absl::string_view text) {
  std::vector<CheckpointSection> sections;
  for (const absl::string_view line :
       absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, '\t');
    CheckpointSection section;
    int dtype = 0;
    if (words.size() != 5 || !absl::SimpleAtoi(words[0], &section.version) ||
        !absl::SimpleAtoi(words[1], &dtype) ||
        !absl::SimpleAtoi(words[2], &section.bytes) ||
        !absl::SimpleAtoi(words[3], &section.offset) ||
        !absl::CUnescape(words[4], &section.name)) {
      return absl::InternalError(
          absl::StrCat("rank 0 told of a section of its checkpoint so: ",
                       absl::CHexEscape(line)));
    }
    if (dtype != 0) section.dtype = static_cast<DType>(dtype);
    sections.push_back(std::move(section));
  }
  return sections;
}

}  // namespace lockstep::internal_checkpoint
