// Checks of invariants in Lockstep's own code. A mistake of a user gives a
// Status; a check is for conditions that only a bug in the library can violate:
//
//   LOCKSTEP_CHECK(ticket < ring.size());
//
// A failed check ends the process with its place and text (end_process.h).
// LOCKSTEP_DCHECK is for hot paths: it vanishes under NDEBUG (-c opt).
#ifndef LOCKSTEP_BASE_CHECK_H_
#define LOCKSTEP_BASE_CHECK_H_

#include "lockstep/base/language.h"

namespace lockstep::internal_base {

[[noreturn]] void CheckFailed(const char* file, int line,
                              const char* condition);

}  // namespace lockstep::internal_base

#define LOCKSTEP_CHECK(condition)                                         \
  (static_cast<bool>(condition) ? static_cast<void>(0)                    \
                                : ::lockstep::internal_base::CheckFailed( \
                                      __FILE__, __LINE__, #condition))

#ifdef NDEBUG
#define LOCKSTEP_DCHECK(condition) static_cast<void>(sizeof(!(condition)))
#else
#define LOCKSTEP_DCHECK(condition) LOCKSTEP_CHECK(condition)
#endif

#endif  // LOCKSTEP_BASE_CHECK_H_
