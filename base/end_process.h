// These functions end the process where Lockstep can't go on. First they shut
// down the connections that keep ranks in touch, so that the other ranks find
// out at once, even if the system then writes a core file for minutes.
//
//   std::thread thread([this] {
//     RunOrEnd("the thread that keeps this rank in touch", [&] { Run(); });
//   });
//
// RunOrEnd stands where an exception would leave a rank's part in an operation
// undone, so that other ranks would wait for it, or would lose or repeat a
// sample. An exception there means that no memory is left for a small object.
// Code of users has its own handler inside (catch_all.h).
#ifndef LOCKSTEP_BASE_END_PROCESS_H_
#define LOCKSTEP_BASE_END_PROCESS_H_

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Shuts down the connections of ClosedInForks objects, writes `line` and
// `more` to the standard error, and aborts. Allocates no memory.
[[noreturn]] void EndProcess(absl::string_view line,
                             absl::string_view more = "") noexcept;

// Ends the process with a line that says that `what` threw the current
// exception.
// Requires: an exception is being handled.
[[noreturn]] void EndAtException(const char* what) noexcept;

// Returns true if this process is about to end. The ends of its connections
// then say nothing about other ranks. Any thread may call it.
bool ProcessIsEnding();

// Returns the result of `function`, or ends the process if it throws.
template <typename Function>
auto RunOrEnd(const char* what, Function&& function) -> decltype(function()) {
  try {
    return function();
  } catch (...) {
    EndAtException(what);
  }
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_END_PROCESS_H_
