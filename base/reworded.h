// Reworded gives a status another message. The status keeps its code and its
// payloads, such as the blame of a group's failure.
//
//   return Reworded(status, absl::StrCat("loader 'train': ",
//                                        status.message()));
#ifndef LOCKSTEP_BASE_REWORDED_H_
#define LOCKSTEP_BASE_REWORDED_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Returns `status` with this message. An OK status stays as it is.
absl::Status Reworded(const absl::Status& status, absl::string_view message);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_REWORDED_H_
