#include "lockstep/examples/trainer/schedule.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace trainer {
namespace {

using ::lockstep::StatusIs;
using ::testing::HasSubstr;

using Kind = ScheduleOptions::Kind;

void ExpectShares(const ScheduleOptions& options,
                  const std::vector<double>& shares) {
  LOCKSTEP_EXPECT_OK(CheckSchedule(options));
  for (size_t i = 0; i < shares.size(); ++i) {
    const auto step = static_cast<int64_t>(i) + 1;
    EXPECT_NEAR(ShareOf(options, step), shares[i], 1e-8) << step;
  }
}

// The goldens are PyTorch 2.15's (testdata/generate/optimizers.py).
TEST(Schedule, IsPyTorchs) {
  ScheduleOptions cosine;
  cosine.kind = Kind::kCosine;
  cosine.warmup = 4;
  cosine.steps = 12;
  cosine.least = 0.1;
  ExpectShares(cosine,
               {0.25, 0.5, 0.75, 1, 1, 0.96574579, 0.868198052, 0.722207545,
                0.55, 0.377792455, 0.231801948, 0.13425421});
  ScheduleOptions decay;
  decay.kind = Kind::kDecay;
  decay.every = 3;
  decay.factor = 0.5;
  ExpectShares(decay, {1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125});
  decay.warmup = 2;
  ExpectShares(decay, {0.5, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25});
}

TEST(Schedule, StaysWhereItEnds) {
  ScheduleOptions cosine;
  cosine.kind = Kind::kCosine;
  cosine.steps = 3;
  cosine.least = 0.25;
  for (const int64_t step : {4, 5, 1000}) {
    EXPECT_EQ(ShareOf(cosine, step), 0.25);
  }
  EXPECT_EQ(ShareOf(ScheduleOptions(), 1), 1);
  EXPECT_EQ(ShareOf(ScheduleOptions(), 1000000), 1);
}

TEST(Schedule, RefusesOptionsOutOfRange) {
  ScheduleOptions warmup, steps, least, every, factor;
  warmup.warmup = -1;
  steps.kind = Kind::kCosine;
  steps.warmup = steps.steps = 5;
  least.least = NAN;
  every.every = 0;
  factor.factor = 1.5;
  for (const auto& [options, told] :
       {std::make_pair(warmup, "warmup should be 0 or more, but is -1"),
        std::make_pair(steps, "steps should be more than warmup, which is 5"),
        std::make_pair(least, "least should be from 0 to 1, but is nan"),
        std::make_pair(every, "every should be 1 or more, but is 0"),
        std::make_pair(factor, "factor should be from 0 to 1, but is 1.5")}) {
    EXPECT_THAT(CheckSchedule(options),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(told)));
  }
}

}  // namespace
}  // namespace trainer
