#include "lockstep/collective/blocked_time.h"

#include <thread>  // NOLINT: a thread of its own

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/local/local_group.h"
#include "lockstep/collective/work.h"

namespace lockstep {
namespace {

TEST(TimeBlocked, WaitsOfThisThreadAreAddedUp) {
  LocalGroupOptions options;
  options.size = 2;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto ranks, MakeLocalGroup(options));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, ranks[0]->Barrier());
  const absl::Duration before = TimeBlocked();
  const absl::Time began = absl::Now();
  constexpr absl::Duration kWait = absl::Milliseconds(2);
  for (int i = 0; i < 2; ++i) {
    // The other rank has not come.
    EXPECT_THAT(work.WaitUntil(absl::Now() + kWait),
                StatusIs(absl::StatusCode::kDeadlineExceeded));
  }
  const absl::Duration blocked = TimeBlocked() - before;
  // The clocks of both may differ a little.
  EXPECT_GE(blocked, kWait);
  EXPECT_LE(blocked, absl::Now() - began + kWait);
  std::thread([] { EXPECT_EQ(TimeBlocked(), absl::ZeroDuration()); }).join();
  LOCKSTEP_ASSERT_OK(Wait(ranks[1]->Barrier()));
  LOCKSTEP_ASSERT_OK(work.Wait());
  // An operation that has ended blocks nobody.
  const absl::Duration after = TimeBlocked();
  LOCKSTEP_ASSERT_OK(work.Wait());
  EXPECT_EQ(TimeBlocked(), after);
}

}  // namespace
}  // namespace lockstep
