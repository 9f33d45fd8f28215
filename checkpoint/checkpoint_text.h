// Texts in which ranks tell each other what a checkpoint has, and in which it
// keeps the job's settings: a line for each section or setting. Internal.
//
//   const std::string text = TextOf(reader->sections());
//   ...  // to the other ranks
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto sections, SectionsOf(text));
#ifndef LOCKSTEP_CHECKPOINT_CHECKPOINT_TEXT_H_
#define LOCKSTEP_CHECKPOINT_CHECKPOINT_TEXT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/checkpoint/checkpoint_file.h"

namespace lockstep::internal_checkpoint {

// Returns a text without what would end it in a line, for people to read.
std::string InALine(absl::string_view text);

std::string TextOf(const Fingerprint& job);

// Compares two jobs as texts, and returns the settings that were others:
// "seed was 7, and is 8".
std::vector<std::string> Differences(absl::string_view before,
                                     absl::string_view now);

std::string TextOf(absl::Span<const CheckpointSection> sections);
absl::StatusOr<std::vector<CheckpointSection>> SectionsOf(
    absl::string_view text);

}  // namespace lockstep::internal_checkpoint

#endif  // LOCKSTEP_CHECKPOINT_CHECKPOINT_TEXT_H_
