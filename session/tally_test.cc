#include "lockstep/session/tally.h"

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_session {
namespace {

using ::testing::HasSubstr;

TEST(TallyTest, IsExactOverAllRanksThatItAccepts) {
  Tally one;
  one.weight = kMostWeight;
  one.stops = one.finishes = 1;
  std::array<float, kTallied> elements, sums = {};
  one.Write(elements.data());
  for (int64_t rank = 0; rank < kMostRanks; ++rank) {
    for (int64_t i = 0; i < kTallied; ++i) sums[i] += elements[i];
  }
  Tally all;
  all.Read(sums.data());
  EXPECT_EQ(all.weight, kMostRanks * kMostWeight);
  EXPECT_EQ(all.stops, kMostRanks);
  EXPECT_EQ(all.finishes, kMostRanks);
  LOCKSTEP_EXPECT_OK(CheckRanks(kMostRanks));
  EXPECT_THAT(CheckRanks(kMostRanks + 1),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("up to 4096 ranks, and the group has 4097")));
}

}  // namespace
}  // namespace lockstep::internal_session
