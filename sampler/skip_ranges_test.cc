#include "lockstep/sampler/skip_ranges.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(SkipRanges, NumberWhatIsLeftWithoutGaps) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    constexpr int64_t kSize = 200;
    std::vector<bool> skipped(kSize);
    SkipRanges skip;
    for (uint64_t i = random.Below(12); i > 0; --i) {
      const int64_t begin = random.Integer(0, kSize);
      const int64_t end = random.Integer(begin + 1, kSize + 1);
      if (end - begin > 40) continue;
      LOCKSTEP_ASSERT_OK(skip.Add(begin, end));
      std::fill(skipped.begin() + begin, skipped.begin() + end, true);
    }
    int64_t kept = 0;
    for (int64_t raw = 0; raw < kSize; ++raw) {
      ASSERT_EQ(skip.ToKept(raw), kept);
      if (skipped[raw]) continue;
      ASSERT_EQ(skip.ToRaw(kept), raw);
      ++kept;
    }
    ASSERT_EQ(skip.ToKept(kSize), kept);
  }
}

TEST(SkipRanges, JoinWhereTheyTouch) {
  SkipRanges skip;
  for (const auto& [begin, end] :
       {SkipRange{10, 20}, {30, 40}, {20, 25}, {24, 31}}) {
    LOCKSTEP_ASSERT_OK(skip.Add(begin, end));
  }
  ASSERT_EQ(skip.ranges().size(), 1u);
  EXPECT_EQ(skip.ranges()[0].begin, 10);
  EXPECT_EQ(skip.ranges()[0].end, 40);
}

TEST(SkipRanges, RefusesEmptyOnesAndTooMany) {
  SkipRanges skip;
  EXPECT_THAT(skip.Add(5, 5), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("begin=5, end=5")));
  EXPECT_THAT(skip.Add(-1, 5), StatusIs(absl::StatusCode::kInvalidArgument));
  for (int64_t i = 0; i < SkipRanges::kMaxRanges; ++i) {
    LOCKSTEP_ASSERT_OK(skip.Add(2 * i, 2 * i + 1));
  }
  EXPECT_THAT(skip.Add(1000, 1001),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("at most 64 ranges")));
  EXPECT_EQ(skip.ranges().size(), 64u);
  LOCKSTEP_EXPECT_OK(skip.Add(1, 2));
  EXPECT_EQ(skip.ranges().size(), 63u);
}

}  // namespace
}  // namespace lockstep
