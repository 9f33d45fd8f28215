#include "lockstep/base/steady_time.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(SteadyTime, ForEverIsFarAway) {
  for (const absl::Duration far :
       {absl::InfiniteDuration(), absl::Hours(24) * 365 * 100000}) {
    EXPECT_GT(After(far) - SteadyNow(), std::chrono::hours(24 * 36000));
  }
}

TEST(SteadyTime, NothingIsInThePast) {
  const SteadyTime before = SteadyNow();
  for (const absl::Duration none :
       {-absl::InfiniteDuration(), -absl::Seconds(1), absl::ZeroDuration()}) {
    EXPECT_GE(After(none), before);
  }
}

TEST(SteadyTime, ADurationIsKept) {
  const SteadyTime before = SteadyNow();
  EXPECT_GE(After(absl::Seconds(5)) - before, std::chrono::seconds(5));
}

TEST(SteadyTime, OfALongLapLittleCounts) {
  RunningTime running(absl::Nanoseconds(1));
  const SteadyTime before = SteadyNow();
  while (SteadyNow() < before + std::chrono::microseconds(1)) {
  }
  EXPECT_EQ(running.Lap(), absl::Nanoseconds(1));
}

}  // namespace
}  // namespace lockstep
