#include "lockstep/base/check.h"

#include "gtest/gtest.h"

namespace {

TEST(Check, PassesAndEvaluatesOnce) {
  int evaluated = 0;
  LOCKSTEP_CHECK(++evaluated == 1);
  EXPECT_EQ(evaluated, 1);
}

TEST(CheckDeathTest, NamesPlaceAndCondition) {
  const int slots = 3;
  EXPECT_DEATH(LOCKSTEP_CHECK(slots > 3),
               "check_test.cc:[0-9]+: Lockstep check failed: slots > 3");
}

TEST(CheckDeathTest, DcheckIsForDebugBuilds) {
  int evaluated = 0;
#ifdef NDEBUG
  LOCKSTEP_DCHECK(++evaluated == 7);
  EXPECT_EQ(evaluated, 0);
#else
  EXPECT_DEATH(LOCKSTEP_DCHECK(++evaluated == 7), "evaluated == 7");
#endif
}

}  // namespace
