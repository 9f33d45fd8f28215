#include "lockstep/tools/doctor/watchdog.h"

#include <unistd.h>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(WatchdogDeathTest, EndsAProcessThatHangs) {
  EXPECT_EXIT(
      {
        Watchdog watchdog("lockstep doctor", absl::Milliseconds(10));
        watchdog.Begin("the look at the GPUs");
        while (true) pause();
      },
      testing::ExitedWithCode(1),
      "lockstep doctor: FAIL: the look at the GPUs has not ended within 10ms; "
      "find out why this hangs, or set a longer --timeout");
}

TEST(Watchdog, LetsGoOfAProcessThatIsDone) {
  Watchdog watchdog("lockstep doctor", absl::InfiniteDuration());
  watchdog.Begin("nothing");
}

}  // namespace
}  // namespace lockstep
