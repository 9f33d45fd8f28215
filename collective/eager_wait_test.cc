#include "lockstep/collective/eager_wait.h"

#include <chrono>  // NOLINT: EagerWait speaks chrono

#include "gtest/gtest.h"

namespace lockstep::internal_collective {
namespace {

// Returns how many of the next waits sleep at once.
int SleepsAtOnce(EagerWait& eager) {
  int sleeps = 0;
  while (!eager.Due()) ++sleeps;
  return sleeps;
}

TEST(EagerWait, LooksBeforeItSleeps) {
  EagerWait eager;
  for (int i = 0; i < 100; ++i) {
    int looks = 0;
    eager.Await([&looks] { return ++looks == 3; }, [] { FAIL(); });
    EXPECT_EQ(looks, 3);
  }
  bool slept = false;
  eager.Await([] { return false; }, [&slept] { slept = true; });
  EXPECT_TRUE(slept);
}

TEST(EagerWait, LooksLessOftenTheMoreLooksAreInVain) {
  for (int looks = 1; looks <= 10; ++looks) {
    EagerWait eager;
    for (int i = 0; i < looks; ++i) {
      SleepsAtOnce(eager);
      eager.FoundNothing(EagerWait::kLook);
    }
    EXPECT_EQ(SleepsAtOnce(eager), looks <= 6 ? (1 << looks) - 1 : 63);
    eager.Found();
    EXPECT_EQ(SleepsAtOnce(eager), 0);
    eager.FoundNothing(EagerWait::kLook);
    EXPECT_EQ(SleepsAtOnce(eager), 1);
  }
}

// A rank that waits for the backward pass of another one goes on looking.
TEST(EagerWait, LearnsNothingFromALongWait) {
  EagerWait eager;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(eager.Due());
    eager.FoundNothing(EagerWait::kLongWait + std::chrono::microseconds(1));
  }
}

}  // namespace
}  // namespace lockstep::internal_collective
