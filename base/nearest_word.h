// Finds which of some words was meant by one that is none of them.
#ifndef LOCKSTEP_BASE_NEAREST_WORD_H_
#define LOCKSTEP_BASE_NEAREST_WORD_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Returns the word to which `word` is most similar, if no more than a third of
// its letters are wrong.
std::optional<std::string> NearestWord(absl::string_view word,
                                       absl::Span<const std::string> words);

// For messages: "'num_worker'; did you mean 'num_workers'? Known: num_workers,
// seed".
std::string SayUnknown(absl::string_view word,
                       absl::Span<const std::string> words);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_NEAREST_WORD_H_
