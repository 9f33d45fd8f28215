// Finds the known word that a misspelled word probably means, for messages.
#ifndef LOCKSTEP_BASE_NEAREST_WORD_H_
#define LOCKSTEP_BASE_NEAREST_WORD_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Returns the word of `words` that is most similar to `word`, if at most a
// third of the letters of `word` are wrong.
std::optional<std::string> NearestWord(absl::string_view word,
                                       absl::Span<const std::string> words);

// Returns a text for messages: "'num_worker'; did you mean 'num_workers'?
// Known: num_workers, seed".
std::string SayUnknown(absl::string_view word,
                       absl::Span<const std::string> words);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_NEAREST_WORD_H_
