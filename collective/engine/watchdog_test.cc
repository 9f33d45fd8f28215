#include "lockstep/collective/engine/watchdog.h"

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/control/failure_timing.h"

namespace lockstep::internal_collective {
namespace {

constexpr absl::Duration kSlow = absl::Seconds(1);
constexpr absl::Duration kMoment = absl::Milliseconds(1);

class WatchdogTest : public testing::Test {
 protected:
  WatchdogTest() { watchdog_.Start(begin_); }

  // Returns the circumstances that long after the operation began. The control
  // plane has run all the time.
  Watchdog::Tick At(absl::Duration time) const {
    Watchdog::Tick tick;
    tick.now = begin_ + absl::ToChronoNanoseconds(time);
    tick.ran = time;
    return tick;
  }
  Watchdog::Tick ExpiredAt(absl::Duration time) const {
    Watchdog::Tick tick = At(time);
    tick.expired = true;
    return tick;
  }
  void FailAt(absl::Duration time, const absl::Status& error) {
    watchdog_.SetError(error, begin_ + absl::ToChronoNanoseconds(time));
  }

  const SteadyTime begin_ = SteadyNow();
  const FailureTiming timing_;
  Watchdog watchdog_{timing_, kSlow, /*asks_why=*/true};
};

bool OrdersNothing(const Watchdog::Orders& orders) {
  return !orders.decide_alone && !orders.fail_as_coming &&
         !orders.report_late && !orders.report_error;
}

TEST_F(WatchdogTest, AnOperationInTimeIsNotReported) {
  EXPECT_TRUE(OrdersNothing(watchdog_.OnTick(At(absl::ZeroDuration()))));
  EXPECT_TRUE(OrdersNothing(watchdog_.OnTick(At(kSlow - kMoment))));
  EXPECT_EQ(watchdog_.reported(), Watchdog::Reported::kNothing);
}

TEST_F(WatchdogTest, ASlowOperationIsReportedOnce) {
  EXPECT_TRUE(watchdog_.OnTick(At(kSlow)).report_late);
  EXPECT_EQ(watchdog_.reported(), Watchdog::Reported::kLate);
  EXPECT_TRUE(OrdersNothing(watchdog_.OnTick(At(10 * kSlow))));
}

TEST_F(WatchdogTest, ASlowOperationIsReportedAgainWhenThatIsForgotten) {
  EXPECT_TRUE(watchdog_.OnTick(At(kSlow)).report_late);
  watchdog_.ForgetLate();
  EXPECT_TRUE(watchdog_.OnTick(At(kSlow)).report_late);
  EXPECT_TRUE(watchdog_.OnTick(ExpiredAt(2 * kSlow)).report_late);
  watchdog_.ForgetLate();
  EXPECT_EQ(watchdog_.reported(), Watchdog::Reported::kExpired);
  EXPECT_TRUE(OrdersNothing(watchdog_.OnTick(ExpiredAt(2 * kSlow))));
}

TEST_F(WatchdogTest, TheNextOperationHasItsOwnTime) {
  EXPECT_TRUE(watchdog_.OnTick(At(kSlow)).report_late);
  watchdog_.Start(At(kSlow).now);
  EXPECT_TRUE(OrdersNothing(watchdog_.OnTick(At(2 * kSlow - kMoment))));
  EXPECT_TRUE(watchdog_.OnTick(At(2 * kSlow)).report_late);
}

TEST_F(WatchdogTest, ARankDecidesAloneIfNoVerdictComesInTime) {
  EXPECT_TRUE(watchdog_.OnTick(ExpiredAt(kMoment)).report_late);
  EXPECT_TRUE(OrdersNothing(watchdog_.OnTick(ExpiredAt(timing_.verdict))));
  const Watchdog::Orders orders =
      watchdog_.OnTick(ExpiredAt(timing_.verdict + kMoment));
  EXPECT_TRUE(orders.decide_alone);
  EXPECT_FALSE(orders.report_late);
}

TEST_F(WatchdogTest, AVerdictIsAwaitedFromRank0ThatIsHere) {
  EXPECT_TRUE(watchdog_.OnTick(ExpiredAt(kMoment)).report_late);
  Watchdog::Tick tick = ExpiredAt(absl::Minutes(1));
  tick.judged_here = true;
  EXPECT_TRUE(OrdersNothing(watchdog_.OnTick(tick)));
}

// The control plane's clock counts. It stands still while a rank is stopped.
TEST_F(WatchdogTest, ARankThatWasHeldUpGoesOnWaitingForTheVerdict) {
  EXPECT_TRUE(watchdog_.OnTick(ExpiredAt(kMoment)).report_late);
  Watchdog::Tick tick = ExpiredAt(absl::Minutes(1));
  tick.ran = timing_.verdict;
  EXPECT_TRUE(OrdersNothing(watchdog_.OnTick(tick)));
}

TEST_F(WatchdogTest, AnErrorIsLateAtOnceAndIsReportedAfterAWhile) {
  FailAt(kMoment, absl::UnavailableError("cut off"));
  FailAt(kMoment, absl::InternalError("what follows from it"));
  EXPECT_EQ(watchdog_.error(), absl::UnavailableError("cut off"));
  const Watchdog::Orders first = watchdog_.OnTick(At(kMoment));
  EXPECT_TRUE(first.report_late);
  EXPECT_FALSE(first.report_error);
  EXPECT_TRUE(OrdersNothing(watchdog_.OnTick(At(timing_.reason))));
  EXPECT_TRUE(watchdog_.OnTick(At(timing_.reason + kMoment)).report_error);
  EXPECT_TRUE(OrdersNothing(watchdog_.OnTick(At(2 * timing_.reason))));
}

TEST_F(WatchdogTest, AMismatchWaitsLongerForItsReason) {
  FailAt(absl::ZeroDuration(), absl::FailedPreconditionError("they differ"));
  EXPECT_FALSE(watchdog_.OnTick(At(timing_.mismatch - kMoment)).report_error);
  EXPECT_TRUE(watchdog_.OnTick(At(timing_.mismatch)).report_error);
}

TEST_F(WatchdogTest, AnErrorIsNotLateWhereTheOthersCannotSayWhy) {
  Watchdog making(timing_, kSlow, /*asks_why=*/false);
  making.Start(begin_);
  making.SetError(absl::UnavailableError("refused"), begin_);
  EXPECT_TRUE(OrdersNothing(making.OnTick(At(kMoment))));
  const Watchdog::Orders orders = making.OnTick(At(timing_.reason));
  EXPECT_TRUE(orders.report_error);
  EXPECT_FALSE(orders.report_late);
}

// Nothing was issued that rank 0 could compare, so no better reason can come.
TEST_F(WatchdogTest, AnErrorOfAGroupThatIsBeingMadeWaitsNoLongerForAMismatch) {
  Watchdog making(timing_, kSlow, /*asks_why=*/false);
  making.Start(begin_);
  making.SetError(absl::FailedPreconditionError("sizes differ"), begin_);
  EXPECT_TRUE(OrdersNothing(making.OnTick(At(timing_.reason - kMoment))));
  EXPECT_TRUE(making.OnTick(At(timing_.reason)).report_error);
}

TEST_F(WatchdogTest, AFailureThatIsComingDoesNotWaitForAnError) {
  FailAt(absl::ZeroDuration(), absl::UnavailableError("cut off"));
  EXPECT_TRUE(watchdog_.OnTick(At(timing_.reason)).report_error);
  Watchdog::Tick tick = At(timing_.reason + kMoment);
  tick.failure_is_coming = true;
  const Watchdog::Orders orders = watchdog_.OnTick(tick);
  EXPECT_TRUE(orders.fail_as_coming);
  EXPECT_FALSE(orders.report_error);
}

TEST_F(WatchdogTest, AFailureThatIsComingWaitsForOperationsThatGoOn) {
  Watchdog::Tick tick = At(kMoment);
  tick.failure_is_coming = true;
  EXPECT_TRUE(OrdersNothing(watchdog_.OnTick(tick)));
}

}  // namespace
}  // namespace lockstep::internal_collective
