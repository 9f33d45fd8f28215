#include "lockstep/tools/doctor/watchdog.h"

#include <unistd.h>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(WatchdogDeathTest, EndsAProcessThatHangs) {
  EXPECT_EXIT(
      {
        Watchdog watchdog("lockstep doctor", absl::Milliseconds(5),
                          absl::Milliseconds(5), "looking at the GPUs");
        while (true) pause();
      },
      testing::ExitedWithCode(1),
      "lockstep doctor: FAIL: not done within 5ms: looking at the GPUs; find "
      "out why this hangs, or set a longer --timeout");
}

TEST(Watchdog, LetsGoOfAProcessThatIsDone) {
  Watchdog watchdog("lockstep doctor", absl::InfiniteDuration(),
                    absl::ZeroDuration(), "nothing");
  watchdog.Begin("nothing else");
}

}  // namespace
}  // namespace lockstep
