// These texts have one line for each section or setting. Ranks use them to
// share the list of a checkpoint's sections, and a checkpoint stores the job's
// settings as one. Internal.
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

// Returns the text with tabs and ends of lines escaped, for people to read.
std::string InALine(absl::string_view text);

std::string TextOf(const Fingerprint& job);

// Compares the texts of two jobs, and returns the settings that differ, such as
// "seed was 7, and is 8".
std::vector<std::string> Differences(absl::string_view before,
                                     absl::string_view now);

std::string TextOf(absl::Span<const CheckpointSection> sections);
absl::StatusOr<std::vector<CheckpointSection>> SectionsOf(
    absl::string_view text);

}  // namespace lockstep::internal_checkpoint

#endif  // LOCKSTEP_CHECKPOINT_CHECKPOINT_TEXT_H_
