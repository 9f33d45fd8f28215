#include "lockstep/tools/report/step_loss.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/tools/records/rank_records.h"

namespace lockstep::internal_report {
namespace {

using ::testing::DoubleNear;

constexpr double kTolerance = 1e-6;

StepTimes Times(float for_data, float own, float blocked) {
  StepTimes times;
  times.step = 7;
  times.whole = for_data + own + blocked;
  times.for_data = for_data;
  times.blocked = blocked;
  times.collectives = 1;
  return times;
}

// Two ranks wait for data, and all wait for the last one, which computes.
class StepLossTest : public testing::Test {
 protected:
  StepLossTest() {
    loss_.Look({&times_[0], &times_[1], &times_[2], &times_[3]},
               /*transfer_share=*/1);
  }

  const std::vector<StepTimes> times_ = {Times(3, 1, 7), Times(4, 1, 6),
                                         Times(0, 1, 10), Times(0, 10, 1)};
  StepLoss loss_;
};

TEST_F(StepLossTest, TheRankThatWaitsLeastIsTheLast) {
  EXPECT_EQ(loss_.last(), 3);
  EXPECT_TRUE(loss_.has_last());
  EXPECT_THAT(loss_.lost(), DoubleNear(31, kTolerance));
  EXPECT_THAT(loss_.WithoutTransfers(), DoubleNear(4, kTolerance));
  const Lateness late = loss_.LatenessOf(3);
  EXPECT_THAT(late.all, DoubleNear(6, kTolerance));
  EXPECT_THAT(late.own, DoubleNear(6, kTolerance));
  EXPECT_EQ(loss_.LatenessOf(2).all, 0);
}

TEST_F(StepLossTest, FasterDataWinsNothingForThoseThatWait) {
  // They would wait for the last rank instead.
  EXPECT_THAT(loss_.WithoutData(), DoubleNear(0, kTolerance));
  EXPECT_EQ(loss_.WithoutSet({true, true, false, false}), 0);
}

TEST_F(StepLossTest, WithoutTheLastRankTheOthersWaitLess) {
  // The second to last one waits for 6. So three ranks wait for 5 less, and the
  // last one comes as their median does, and waits for 1 as it does.
  EXPECT_THAT(loss_.WithoutLast(), DoubleNear(15 - 1, kTolerance));
  EXPECT_THAT(loss_.WithoutSet({false, false, false, true}),
              DoubleNear(15 - 1, kTolerance));
  // Without rank 1, too, the next one waits for 7.
  EXPECT_GT(loss_.WithoutSet({false, true, false, true}), 0);
}

}  // namespace
}  // namespace lockstep::internal_report
