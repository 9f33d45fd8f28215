// SystemError turns the error number of a failed system call into a Status that
// suggests a remedy.
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

// Returns true if a resource ran out: descriptors, memory, threads or processes
// (EAGAIN), space on a disk.
bool IsShortage(int error);

// Returns a remedy for a shortage: "; raise the limit ...", or "" if none is
// known.
absl::string_view RemedyFor(int error);

// Returns the text with its remedy: "Too many open files; raise the limit ...".
std::string ErrorText(int error);

// Returns a Status such as "can't make a timer: Too many open files; raise the
// limit ...". Its code is RESOURCE_EXHAUSTED for a shortage, and `otherwise`
// for other errors.
absl::Status SystemError(
    int error, absl::string_view what,
    absl::StatusCode otherwise = absl::StatusCode::kUnavailable);

// Tries to open `count` more descriptors, and returns the error of that, or 0.
// It is for libraries that do not say why they failed.
int ShortageOfDescriptors(int count = 1);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_SYSTEM_ERROR_H_
