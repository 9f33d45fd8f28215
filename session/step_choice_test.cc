#include "lockstep/session/step_choice.h"

#include <cstdint>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/metrics/records.h"

namespace lockstep::internal_session {
namespace {

using Why = StepEvents::Why;

// Passes over steps of a second.
void Pass(StepChoice& choice, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step) choice.Choose(step, 1);
}

TEST(StepChoice, TakesTheFirstStepsOfTheProcess) {
  StepChoice choice;
  for (int64_t step = 5001; step <= 5100; ++step) {
    EXPECT_EQ(choice.Choose(step, step), Why::kFirst) << step;
  }
  EXPECT_EQ(choice.Choose(5101, 1), std::nullopt);
}

TEST(StepChoice, TakesTheSameSampleOnAllRanks) {
  StepChoice choice;
  for (int64_t step = 1; step <= 1000; ++step) {
    const std::optional<Why> why = choice.Choose(step, 1);
    if (step <= 100) continue;
    EXPECT_EQ(why.has_value(), step % 100 == 0) << step;
  }
  EXPECT_EQ(choice.Choose(1100, 1), Why::kSample);
  EXPECT_EQ(choice.TakeDropped(), 0);
}

TEST(StepChoice, TakesSlowSteps) {
  StepChoice choice;
  Pass(choice, 1, 130);
  EXPECT_EQ(choice.Choose(131, 1.9), std::nullopt);
  EXPECT_EQ(choice.Choose(132, 2.1), Why::kSlow);
  EXPECT_EQ(choice.Choose(133, 1), std::nullopt);
  Pass(choice, 134, 199);
  EXPECT_EQ(choice.Choose(200, 3), Why::kSlow);
  // A new pace is not slow for long.
  for (int64_t step = 201; step <= 299; ++step) choice.Choose(step, 5);
  EXPECT_EQ(choice.Choose(301, 5), std::nullopt);
  EXPECT_EQ(choice.Choose(302, 11), Why::kSlow);
}

// Many steps that are a bit slow keep none from those that are very slow.
TEST(StepChoice, TakesTheSlowestSteps) {
  StepChoice choice;
  Pass(choice, 1, 200);
  for (int64_t step = 201; step <= 3200; ++step) {
    const bool is_very_slow = step % 101 == 0;
    const bool is_slow = step % 3 == 0;
    const std::optional<Why> why = choice.Choose(step, is_very_slow ? 50
                                                       : is_slow    ? 2.5
                                                                    : 1);
    EXPECT_TRUE(!is_very_slow || why == Why::kSlow) << step;
  }
  EXPECT_GT(choice.TakeDropped(), 0);
  // The slowest of all are of the last class.
  EXPECT_EQ(choice.Choose(3201, 1e12), Why::kSlow);
}

TEST(StepChoice, CountsTheSlowStepsThatAreTooMany) {
  StepChoice choice;
  Pass(choice, 1, 200);
  // A third of the steps is slow.
  int64_t slow = 0;
  int64_t kept = 0;
  for (int64_t step = 201; step <= 3200; ++step) {
    const bool is_slow = step % 3 == 0;
    const std::optional<Why> why = choice.Choose(step, is_slow ? 2.5 : 1);
    slow += is_slow && why != Why::kSample ? 1 : 0;
    kept += why == Why::kSlow ? 1 : 0;
  }
  EXPECT_GE(kept, 395);
  EXPECT_LE(kept, 401);
  EXPECT_EQ(choice.TakeDropped(), slow - kept);
  EXPECT_EQ(choice.TakeDropped(), 0);
}

}  // namespace
}  // namespace lockstep::internal_session
