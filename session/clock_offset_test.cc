#include "lockstep/session/clock_offset.h"

#include <atomic>
#include <cstdint>
#include <thread>  // NOLINT: ranks
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/local/local_group.h"

namespace lockstep::internal_session {
namespace {

// All ranks read one clock, which advances by a microsecond with each reading;
// the clock of rank r is r seconds ahead. So the reported error does not depend
// on the speed of the machine.
TEST(ClockOffset, IsThatOfTheClocks) {
  constexpr int kRanks = 3;
  LocalGroupOptions options;
  options.size = kRanks;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto ranks, MakeLocalGroup(options));
  std::atomic<int64_t> looks{0};
  std::vector<ClockOffset> offsets(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto measured = MeasureClockOffset(*ranks[rank], [&looks, rank] {
        return int64_t{1'000'000'000} * rank + 1000 * ++looks;
      });
      LOCKSTEP_EXPECT_OK(measured);
      if (measured.ok()) offsets[rank] = *measured;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(offsets[0].seconds, 0);
  EXPECT_EQ(offsets[0].error, 0);
  for (int rank = 1; rank < kRanks; ++rank) {
    EXPECT_NEAR(offsets[rank].seconds, rank, offsets[rank].error + 1e-9);
    EXPECT_GT(offsets[rank].error, 0);
    // Each rank reads the clock three times in a round.
    EXPECT_LT(offsets[rank].error, 1e-5);
  }
}

// If a clock is set during the measurement, the reported error is large.
TEST(ClockOffset, HasALargeErrorWhereAClockIsSet) {
  LocalGroupOptions options;
  options.size = 2;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto ranks, MakeLocalGroup(options));
  int64_t looks = 0;
  ClockOffset offset;
  std::thread other([&] {
    const auto measured = MeasureClockOffset(
        *ranks[1], [&] { return ++looks < 9 ? 0 : int64_t{2'000'000'000}; });
    LOCKSTEP_EXPECT_OK(measured);
    if (measured.ok()) offset = *measured;
  });
  LOCKSTEP_EXPECT_OK(MeasureClockOffset(*ranks[0], [] { return 0; }));
  other.join();
  EXPECT_NEAR(offset.seconds, 1, 1e-9);
  EXPECT_NEAR(offset.error, 1, 1e-9);
}

}  // namespace
}  // namespace lockstep::internal_session
