// Deadlines on the steady clock, which nobody can set back or forward.
//
//   const SteadyTime deadline = After(absl::Seconds(5));
//   while (!done) {
//     if (changed.WaitUntil(mutex, deadline)) break;
//   }
#ifndef LOCKSTEP_BASE_STEADY_TIME_H_
#define LOCKSTEP_BASE_STEADY_TIME_H_

#include <algorithm>
#include <chrono>  // NOLINT: std::condition_variable speaks chrono
#include <cstdint>
#include <utility>

#include "absl/time/time.h"
#include "lockstep/base/language.h"

namespace lockstep {

using SteadyTime = std::chrono::steady_clock::time_point;

inline SteadyTime SteadyNow() { return std::chrono::steady_clock::now(); }

// Returns the time that is `duration` after `start`. A duration of more than a
// century is cut to a century, so it does not overflow.
inline SteadyTime After(absl::Duration duration,
                        SteadyTime start = SteadyNow()) {
  const absl::Duration bounded =
      std::clamp(duration, absl::ZeroDuration(), absl::Hours(24 * 36500));
  return start + absl::ToChronoNanoseconds(bounded);
}

// Returns true if `duration` has passed from `since` to `now`.
inline bool Passed(SteadyTime since, absl::Duration duration, SteadyTime now) {
  return now - since >= absl::ToChronoNanoseconds(duration);
}

// Returns a time as nanoseconds since the clock's start.
inline int64_t SteadyNanoseconds(SteadyTime time = SteadyNow()) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             time.time_since_epoch())
      .count();
}

// Returns how far the steady clocks of two machines may drift apart in a time,
// in nanoseconds. Clocks are taken to differ by at most 20 parts in a million,
// which is a millisecond in 50 seconds.
inline int64_t SteadyDrift(int64_t nanoseconds) {
  constexpr int64_t kMillion = 1'000'000;
  constexpr int64_t kParts = 20;
  const int64_t time = nanoseconds < 0 ? -nanoseconds : nanoseconds;
  return (time + kMillion - 1) / kMillion * kParts;
}

// Measures the time during which this process runs. If the process was stopped
// for long between two calls of Lap, at most `most` of that time counts.
// Thread-safety: thread-compatible.
class RunningTime {
 public:
  explicit RunningTime(absl::Duration most) : most_(most) {}

  // Returns the time since the last call, or since construction; `most` at
  // most.
  absl::Duration Lap() {
    const SteadyTime now = SteadyNow();
    return std::min(most_, absl::FromChrono(now - std::exchange(last_, now)));
  }

 private:
  const absl::Duration most_;
  SteadyTime last_ = SteadyNow();
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_STEADY_TIME_H_
