// SystemError turns what the system says of a call that failed into a Status
// with a remedy.
//
//   const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
//   if (timer < 0) return SystemError(errno, "can't make a timer");
#ifndef LOCKSTEP_BASE_SYSTEM_ERROR_H_
#define LOCKSTEP_BASE_SYSTEM_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Returns whether there is no more of what was asked for: descriptors, memory,
// threads and processes (EAGAIN), room on a disk.
bool IsShortage(int error);

// Returns what to do about a shortage: "; raise the limit ...", or nothing.
absl::string_view RemedyFor(int error);

// "Too many open files; raise the limit ...".
std::string ErrorText(int error);

// "can't make a timer: Too many open files; raise the limit ...".
// RESOURCE_EXHAUSTED for a shortage, and `otherwise` for anything else.
absl::Status SystemError(
    int error, absl::string_view what,
    absl::StatusCode otherwise = absl::StatusCode::kUnavailable);

// Returns the error of opening `count` descriptors more, now, or 0 if that
// works. It is for libraries that do not say why they have failed.
int ShortageOfDescriptors(int count = 1);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_SYSTEM_ERROR_H_
