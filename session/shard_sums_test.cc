#include "lockstep/session/shard_sums.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_session {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> NumbersOf(const ShardSums& sums) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < sums.shards(); ++i) sums.AppendTo(i, numbers);
  return numbers;
}

TEST(ShardSums, KeepsThoseOfEachShard) {
  ShardSums sums({8, 11});
  for (int step = 0; step < 2; ++step) {
    sums.Clear();
    for (const int64_t shard : {8, 9, 9, 10}) {
      sums.part().Add("loss", static_cast<double>(shard));
      sums.part().Add("tokens", 1, 0.5);
      // The second sum of a shard comes with its second part.
      LOCKSTEP_EXPECT_OK(sums.EndPart(shard));
    }
    sums.part().Add("loss", 0);
    LOCKSTEP_EXPECT_OK(sums.EndPart(-1));
    EXPECT_EQ(sums.shards(), 3);
    EXPECT_THAT(NumbersOf(sums), ElementsAre(8, 1, 0.5, 18, 2, 1, 10, 1, 0.5));
  }
}

TEST(ShardSums, ASumMayComeLate) {
  ShardSums sums({0, 2});
  sums.part().Add("loss", 3);
  LOCKSTEP_EXPECT_OK(sums.EndPart(0));
  sums.part().Add("penalty", 4);
  LOCKSTEP_EXPECT_OK(sums.EndPart(1));
  EXPECT_THAT(NumbersOf(sums), ElementsAre(3, 0, 0, 4));
}

TEST(ShardSums, WithoutShardsAllIsOne) {
  ShardSums sums({});
  for (int part = 0; part < 2; ++part) {
    sums.part().Add("loss", 1.5);
    sums.part().Add("mean", 2, 3);
    LOCKSTEP_EXPECT_OK(sums.EndPart(part == 0 ? 5 : -1));
  }
  EXPECT_EQ(sums.shards(), 1);
  EXPECT_THAT(NumbersOf(sums), ElementsAre(3, 4, 6));
  sums.Clear();
  EXPECT_THAT(NumbersOf(sums), ElementsAre(0, 0, 0));
}

TEST(ShardSums, RefusesSumsOfEmptyParts) {
  for (const double sum : {0.25, std::numeric_limits<double>::quiet_NaN()}) {
    ShardSums sums({0, 2});
    sums.part().Add("loss", sum);
    EXPECT_THAT(sums.EndPart(-1),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("the sum 'loss' got ")));
  }
  ShardSums sums({0, 2});
  sums.part().Add("loss", 0, 2);
  EXPECT_THAT(sums.EndPart(-1), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("0 by the weight 2 from")));
}

TEST(ShardSums, RefusesShardsOfOtherRanks) {
  for (const int64_t shard : {0, 1, 4, 100}) {
    ShardSums sums({2, 4});
    EXPECT_THAT(sums.EndPart(shard),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("this rank has the shards 2 to 3")));
  }
}

TEST(ShardSums, TellsAWrongWeight) {
  ShardSums sums({0, 2});
  sums.part().Add("loss", 1, -1);
  EXPECT_THAT(sums.EndPart(0), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("the weight of the sum")));
}

}  // namespace
}  // namespace lockstep::internal_session
