#include "lockstep/base/shard_tree.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::string NameOf(const ShardRange& run) {
  return absl::StrCat(run.begin, "-", run.end - 1);
}

std::vector<std::string> NamesOf(const std::vector<ShardRange>& runs) {
  std::vector<std::string> names;
  names.reserve(runs.size());
  for (const ShardRange& run : runs) names.push_back(NameOf(run));
  return names;
}

// The sums of a tree, written down from the top, as the documents define it.
void AddSums(int64_t begin, int64_t end, std::set<std::string>& sums) {
  const int64_t count = end - begin;
  sums.insert(NameOf({begin, end}));
  if (count == 1) return;
  // Three are added up as (a + b) + c, and all others by halves.
  const int64_t middle = count == 3 ? begin + 2 : begin + count / 2;
  AddSums(begin, middle, sums);
  AddSums(middle, end, sums);
}

const std::vector<int64_t> kCounts = {1, 2, 3, 4, 6, 8, 12, 16, 24, 48, 64};

TEST(ShardTree, HasNumbersOfShards) {
  for (const int64_t shards : {1, 2, 3, 4, 6, 8, 12, 24, 49152, 65536}) {
    EXPECT_TRUE(IsShardCount(shards)) << shards;
  }
  for (const int64_t shards :
       {-3, -1, 0, 5, 7, 9, 10, 15, 18, 36, 65535, 98304, 131072}) {
    EXPECT_FALSE(IsShardCount(shards)) << shards;
  }
  EXPECT_FALSE(IsShardCount(INT64_MAX));
  EXPECT_FALSE(IsShardCount(INT64_MIN));
}

TEST(ShardTree, HasTheSumsOfItsDefinition) {
  for (const int64_t shards : kCounts) {
    std::set<std::string> expected;
    AddSums(0, shards, expected);
    std::set<std::string> sums;
    for (int64_t begin = 0; begin < shards; ++begin) {
      for (int64_t end = begin + 1; end <= shards; ++end) {
        if (IsShardSum(shards, {begin, end})) sums.insert(NameOf({begin, end}));
      }
    }
    EXPECT_EQ(sums, expected) << shards;
  }
}

TEST(ShardTree, HasTheExamplesOfTheHeader) {
  EXPECT_THAT(NamesOf(ShardSumsOf(12, {4, 9})),
              ElementsAre("4-4", "5-5", "6-8"));
  EXPECT_THAT(NamesOf(ShardSumsOf(12, {0, 12})), ElementsAre("0-11"));
  EXPECT_THAT(NamesOf(ShardSumsOf(12, {3, 5})), ElementsAre("3-4"));
  EXPECT_THAT(ShardSumsOf(12, {5, 5}), IsEmpty());
}

TEST(ShardTree, AppendsSums) {
  std::vector<ShardRange> sums = {{0, 6}, {6, 9}};
  EXPECT_EQ(AppendShardSum(12, {9, 11}, sums), 0);
  EXPECT_THAT(NamesOf(sums), ElementsAre("0-5", "6-8", "9-10"));
  EXPECT_EQ(AppendShardSum(12, {11, 12}, sums), 3);
  EXPECT_THAT(NamesOf(sums), ElementsAre("0-11"));
}

// Every run is cut without gaps, and no two neighbours of the cut are a sum.
TEST(ShardTree, CutsRunsIntoTheFewestSums) {
  for (const int64_t shards : kCounts) {
    for (int64_t begin = 0; begin < shards; ++begin) {
      // fewest[end] is the least number of sums that have [begin, end).
      std::vector<size_t> fewest(shards + 1, shards + 1);
      fewest[begin] = 0;
      for (int64_t end = begin + 1; end <= shards; ++end) {
        for (int64_t middle = begin; middle < end; ++middle) {
          if (!IsShardSum(shards, {middle, end})) continue;
          fewest[end] = std::min(fewest[end], fewest[middle] + 1);
        }
        const std::vector<ShardRange> sums = ShardSumsOf(shards, {begin, end});
        EXPECT_THAT(sums, SizeIs(fewest[end])) << shards << ": " << begin;
        int64_t at = begin;
        for (const ShardRange& sum : sums) {
          EXPECT_EQ(sum.begin, at);
          EXPECT_TRUE(IsShardSum(shards, sum)) << NameOf(sum);
          at = sum.end;
        }
        EXPECT_EQ(at, end);
      }
    }
  }
}

// The numbers of sums that 24 shards make ranks send: all and the most.
TEST(ShardTree, HasFewSumsForFewRanks) {
  const auto sums_of = [](int64_t ranks) {
    std::pair<size_t, size_t> sums;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const size_t own =
          ShardSumsOf(24, {24 * rank / ranks, 24 * (rank + 1) / ranks}).size();
      sums.first += own;
      sums.second = std::max(sums.second, own);
    }
    return sums;
  };
  EXPECT_EQ(sums_of(1), std::make_pair(size_t{1}, size_t{1}));
  EXPECT_EQ(sums_of(2), std::make_pair(size_t{2}, size_t{1}));
  EXPECT_EQ(sums_of(3), std::make_pair(size_t{9}, size_t{4}));
  EXPECT_EQ(sums_of(4), std::make_pair(size_t{4}, size_t{1}));
  EXPECT_EQ(sums_of(6), std::make_pair(size_t{14}, size_t{3}));
  EXPECT_EQ(sums_of(8), std::make_pair(size_t{8}, size_t{1}));
  EXPECT_EQ(sums_of(12), std::make_pair(size_t{20}, size_t{2}));
  EXPECT_EQ(sums_of(24), std::make_pair(size_t{24}, size_t{1}));
}

}  // namespace
}  // namespace lockstep
