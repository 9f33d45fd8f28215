// JSON and TensorBoard accept only text in UTF-8, but names may have any bytes.
// Internal.
//
//   if (Utf8Of(name) != name) return InvalidName(name);
#ifndef LOCKSTEP_BASE_UTF8_H_
#define LOCKSTEP_BASE_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_base {

// Returns the text with the replacement character in place of each byte that is
// not part of a valid character.
std::string Utf8Of(absl::string_view text);

// Returns the number of bytes of the text's first character, or 0 if the text
// does not begin with a valid one.
// Requires: the text is not empty.
size_t SizeOfFirstUtf8(absl::string_view text);

}  // namespace lockstep::internal_base

#endif  // LOCKSTEP_BASE_UTF8_H_
