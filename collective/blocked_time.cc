#include "lockstep/collective/blocked_time.h"

#include <cstdint>

#include "absl/time/time.h"
#include "lockstep/base/steady_time.h"

namespace lockstep {
namespace {

thread_local int64_t blocked = 0;  // nanoseconds

}  // namespace

absl::Duration TimeBlocked() { return absl::Nanoseconds(blocked); }

namespace internal_collective {

void AddTimeBlocked(SteadyTime from, SteadyTime to) {
  blocked += SteadyNanoseconds(to) - SteadyNanoseconds(from);
}

}  // namespace internal_collective

}  // namespace lockstep
