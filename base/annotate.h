// Annotate adds words to the message of a status, and keeps its code and its
// payloads, such as the blame of a group's failure. A status that is made anew
// from the code and the message of another one loses the payloads.
//
//   if (!read.ok()) return Annotate(read, absl::StrCat("shard ", shard));
//   // NOT_FOUND: shard 3: 'data/3.bin' does not exist
#ifndef LOCKSTEP_BASE_ANNOTATE_H_
#define LOCKSTEP_BASE_ANNOTATE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Returns `status` with the message "WHERE: MESSAGE", or with the message
// "MESSAGE" if `where` is empty, and with `behind` at its end. An OK status
// stays as it is.
absl::Status Annotate(const absl::Status& status, absl::string_view where,
                      absl::string_view behind = "");

// Returns `other` with the payloads of `status`, for an error that takes the
// place of `status` under another code. If `other` is OK, it stays as it is.
absl::Status InPlaceOf(const absl::Status& status, absl::Status other);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_ANNOTATE_H_
