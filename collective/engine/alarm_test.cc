#include "lockstep/collective/engine/alarm.h"

#include <memory>
#include <thread>  // NOLINT: who sleeps and who sets

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/base/steady_time.h"

namespace lockstep::internal_collective {
namespace {

TEST(Alarm, SleepsUntilThen) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto alarm, Alarm::Create());
  const SteadyTime when = After(absl::Milliseconds(5));
  alarm->Set(when);
  alarm->Sleep();
  EXPECT_GE(SteadyNow(), when);
}

TEST(Alarm, ATimeInThePastWakesAtOnce) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto alarm, Alarm::Create());
  for (const SteadyTime when : {SteadyTime(), SteadyNow()}) {
    alarm->Set(when);
    alarm->Sleep();
  }
}

TEST(Alarm, IsSetForAnotherTimeMeanwhile) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto alarm, Alarm::Create());
  alarm->Set(After(absl::Hours(1)));
  std::thread sleeper([&] { alarm->Sleep(); });
  alarm->Set(SteadyNow());
  sleeper.join();

  // The time that was set first does not count.
  const SteadyTime when = After(absl::Milliseconds(5));
  alarm->Set(After(absl::Hours(1)));
  alarm->Set(when);
  alarm->Sleep();
  EXPECT_GE(SteadyNow(), when);
}

}  // namespace
}  // namespace lockstep::internal_collective
