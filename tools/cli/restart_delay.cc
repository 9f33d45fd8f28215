#include "lockstep/tools/cli/restart_delay.h"

#include <algorithm>

#include "absl/time/time.h"

namespace lockstep {

absl::Duration RestartDelay::Next(absl::Duration ran) {
  if (ran >= kMost) next_ = absl::ZeroDuration();
  const absl::Duration delay = std::min(next_, kMost);
  next_ = delay == absl::ZeroDuration() ? second_ : 2 * delay;
  return delay;
}

}  // namespace lockstep
