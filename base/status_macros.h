// These macros pass the error of a Status or a StatusOr on to the caller.
//
//   absl::StatusOr<Plan> MakePlan(absl::string_view text) {
//     LOCKSTEP_ASSIGN_OR_RETURN(Options options, Options::FromString(text));
//     LOCKSTEP_RETURN_IF_ERROR(options.Validate());
//     return Plan(options);
//   }
//
// Both return from the enclosing function, which may return absl::Status or
// any absl::StatusOr.
#ifndef LOCKSTEP_BASE_STATUS_MACROS_H_
#define LOCKSTEP_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"

// Returns the Status of `expression` (an absl::Status) unless it is OK.
#define LOCKSTEP_RETURN_IF_ERROR(expression)           \
  do {                                                 \
    if (::absl::Status lockstep_status = (expression); \
        !lockstep_status.ok()) {                       \
      return lockstep_status;                          \
    }                                                  \
  } while (false)

// Moves the value of `expression` (an absl::StatusOr) into `target`, which may
// declare a variable, or returns its Status.
#define LOCKSTEP_ASSIGN_OR_RETURN(target, expression) \
  LOCKSTEP_ASSIGN_OR_RETURN_IMPL_(                    \
      LOCKSTEP_CONCAT_(lockstep_status_or_, __LINE__), target, expression)

#define LOCKSTEP_ASSIGN_OR_RETURN_IMPL_(result, target, expression) \
  auto result = (expression);                                       \
  if (!result.ok()) return std::move(result).status();              \
  target = *std::move(result)

#define LOCKSTEP_CONCAT_(a, b) LOCKSTEP_CONCAT_IMPL_(a, b)
#define LOCKSTEP_CONCAT_IMPL_(a, b) a##b

#endif  // LOCKSTEP_BASE_STATUS_MACROS_H_
