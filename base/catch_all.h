// CatchAll turns what code throws into a Status: at the boundary to a user's
// code, to a library that throws, and around own code that allocates memory
// where nothing may be thrown further.
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

// Returns what is thrown now as a Status that says that `what` threw it.
// Memory, threads and descriptors that have run out are RESOURCE_EXHAUSTED,
// anything else is UNKNOWN. Where there is no memory for the text either, the
// Status has none. Requires that an exception is being handled.
absl::Status CurrentException(const char* what) noexcept;

// Returns what `function` returns: a Status, or a StatusOr.
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
