// TimeBlocked returns for how long this thread has been blocked by operations:
// in Work::Wait and Work::WaitUntil, also where other calls wait inside. The
// difference of two calls tells what a part of a program has lost to them.
//
//   const absl::Duration before = TimeBlocked();
//   Train(batch);
//   const absl::Duration blocked = TimeBlocked() - before;
#ifndef LOCKSTEP_COLLECTIVE_BLOCKED_TIME_H_
#define LOCKSTEP_COLLECTIVE_BLOCKED_TIME_H_

#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"

namespace lockstep {

// Returns the time since the thread began. It does not contain waits for an
// operation that had ended before, and those of WaitOnStream.
absl::Duration TimeBlocked();

namespace internal_collective {

// Adds a wait of this thread.
void AddTimeBlocked(SteadyTime from, SteadyTime to);

}  // namespace internal_collective

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_BLOCKED_TIME_H_
