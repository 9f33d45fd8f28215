// RestartDelay says how long the launcher waits before each restart, so that a
// job that can't start leaves the host some time.
//
//   RestartDelay delay(absl::Seconds(1));
//   delay.Next(absl::Seconds(3));  // 0 s
//   delay.Next(absl::Seconds(3));  // 1 s
//   delay.Next(absl::Seconds(3));  // 2 s
#ifndef LOCKSTEP_TOOLS_CLI_RESTART_DELAY_H_
#define LOCKSTEP_TOOLS_CLI_RESTART_DELAY_H_

#include "absl/time/time.h"

namespace lockstep {

// The first restart does not wait, the second one waits for `second`, and each
// later one waits twice as long as the one before, but no more than kMost. The
// sequence begins again after ranks that have run for at least kMost.
// Thread-safety: for one thread at a time.
class RestartDelay {
 public:
  static constexpr absl::Duration kMost = absl::Minutes(1);

  explicit RestartDelay(absl::Duration second) : second_(second) {}

  // Returns how long the next restart waits, after ranks that ran for `ran`.
  absl::Duration Next(absl::Duration ran);

 private:
  const absl::Duration second_;
  absl::Duration next_ = absl::ZeroDuration();
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_RESTART_DELAY_H_
