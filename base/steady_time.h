// Deadlines on the clock that nobody sets.
//
//   const SteadyTime deadline = After(absl::Seconds(5));
//   while (!done) {
//     if (changed.WaitUntil(mutex, deadline)) break;
//   }
#ifndef LOCKSTEP_BASE_STEADY_TIME_H_
#define LOCKSTEP_BASE_STEADY_TIME_H_

#include <algorithm>
#include <chrono>  // NOLINT: std::condition_variable speaks chrono
#include <utility>

#include "absl/time/time.h"
#include "lockstep/base/language.h"

namespace lockstep {

using SteadyTime = std::chrono::steady_clock::time_point;

inline SteadyTime SteadyNow() { return std::chrono::steady_clock::now(); }

// So long from now, or from `start`. A century stands for ever, and does not
// overflow.
inline SteadyTime After(absl::Duration duration,
                        SteadyTime start = SteadyNow()) {
  const absl::Duration bounded =
      std::clamp(duration, absl::ZeroDuration(), absl::Hours(24 * 36500));
  return start + absl::ToChronoNanoseconds(bounded);
}

// How much time passes while this process runs: of one that was stopped for
// long, no more than `most` counts.
class RunningTime {
 public:
  explicit RunningTime(absl::Duration most) : most_(most) {}

  // Since the last call, or since the beginning.
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
