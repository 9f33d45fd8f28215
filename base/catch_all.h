// CatchAll turns exceptions into a Status. It stands at the boundary to code of
// users and to libraries that throw, and around own code that allocates memory
// in proportion to a user's sizes. Elsewhere, own code that runs out of memory
// ends the process (end_process.h).
//
//   absl::Status status = CatchAll("the progress callback", [&] {
//     callback(report);
//     return absl::OkStatus();
//   });
#ifndef LOCKSTEP_BASE_CATCH_ALL_H_
#define LOCKSTEP_BASE_CATCH_ALL_H_

#include "absl/status/status.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Returns the current exception as a Status that says that `what` threw it. The
// code is RESOURCE_EXHAUSTED if memory, threads or descriptors have run out,
// and UNKNOWN otherwise. The Status has no text if there is no memory for it.
// Requires: an exception is being handled.
absl::Status CurrentException(const char* what) noexcept;

// Returns the result of `function`, which is a Status or a StatusOr, or the
// Status of the exception that it throws.
template <typename Function>
auto CatchAll(const char* what, Function&& function) -> decltype(function()) {
  try {
    return function();
  } catch (...) {
    return CurrentException(what);
  }
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_CATCH_ALL_H_
