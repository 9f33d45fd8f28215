// Finds a number in a JSON object. Internal.
//
//   FindJsonNumber(R"({"size": {"width": 7}})", "size.width")  // "7"
#ifndef LOCKSTEP_LOADER_DATASETS_JSON_NUMBER_H_
#define LOCKSTEP_LOADER_DATASETS_JSON_NUMBER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_loader {

// Returns the word at a key: a number, which may be NaN or Infinity as Python
// writes them, "true" or "false". Dots in the key part the keys of objects in
// objects. Keys are compared as they are written, with escapes. If a key comes
// twice, the last one counts. NOT_FOUND if there is no such key, or null there.
// DATA_LOSS if there is something else, or with the place in the text if it is
// no JSON; at most 100 objects and lists may be nested.
absl::StatusOr<absl::string_view> FindJsonNumber(absl::string_view text,
                                                 absl::string_view key);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_DATASETS_JSON_NUMBER_H_
