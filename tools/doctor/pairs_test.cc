#include "lockstep/tools/doctor/pairs.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_group.h"
#include "lockstep/collective/testing/conformance.h"
#include "lockstep/tools/doctor/finding.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Rounds, HaveEachPairOnce) {
  for (int size = 2; size <= 33; ++size) {
    std::set<std::pair<int, int>> pairs;
    for (int round = 0; round < RoundsOf(size); ++round) {
      for (int rank = 0; rank < size; ++rank) {
        const int partner = PartnerIn(round, rank, size);
        if (partner < 0) {
          EXPECT_EQ(size % 2, 1);
          continue;
        }
        ASSERT_LT(partner, size);
        EXPECT_NE(partner, rank);
        EXPECT_EQ(PartnerIn(round, partner, size), rank);
        if (rank < partner) {
          EXPECT_EQ(RoundOf({rank, partner}, size), round);
          EXPECT_TRUE(pairs.insert({rank, partner}).second);
        }
      }
    }
    EXPECT_EQ(pairs.size(), static_cast<size_t>(size * (size - 1) / 2));
  }
}

TEST(Rounds, AreSpreadEvenlyWhereThereAreMany) {
  EXPECT_THAT(ChooseRounds(1, 127), IsEmpty());
  EXPECT_THAT(ChooseRounds(4, 127), ElementsAre(0, 1, 2));
  EXPECT_THAT(ChooseRounds(10, 3), ElementsAre(0, 3, 6));
  // Each two machines with eight ranks exchange data in some pair.
  constexpr int kRanks = 1024, kHere = 8;
  std::set<std::pair<int, int>> machines;
  const std::vector<int> rounds = ChooseRounds(kRanks, 127);
  EXPECT_EQ(rounds.size(), 127u);
  for (const int round : rounds) {
    for (int rank = 0; rank < kRanks; ++rank) {
      machines.insert({rank / kHere, PartnerIn(round, rank, kRanks) / kHere});
    }
  }
  constexpr int kMachines = kRanks / kHere;
  int missing = 0;
  for (int a = 0; a < kMachines; ++a) {
    for (int b = 0; b < kMachines; ++b) {
      missing += a != b && machines.count({a, b}) == 0 ? 1 : 0;
    }
  }
  EXPECT_EQ(missing, 0);
}

absl::Status Measure(Communicator& group) {
  PairOptions options;
  options.bytes = 1000;
  options.pings = 3;
  options.repeats = 2;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<PairSpeed> pairs,
      MeasurePairs(group, ChooseRounds(group.size(), 127), options));
  EXPECT_EQ(pairs.size(), static_cast<size_t>(group.size() - 1 - group.rank()));
  for (const PairSpeed& pair : pairs) {
    EXPECT_EQ(pair.a, group.rank());
    EXPECT_GT(pair.b, pair.a);
    EXPECT_GT(pair.latency, 0);
    EXPECT_GT(pair.bytes_per_second, 0);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const double copies,
                            MeasureCopies(group, absl::InfiniteFuture()));
  EXPECT_GT(copies, 0);
  return absl::OkStatus();
}

TEST(Pairs, AreMeasured) {
  for (const int size : {1, 2, 3, 4}) {
    LocalGroupOptions options;
    options.size = size;
    const auto ranks = MakeLocalGroup(options);
    ASSERT_TRUE(ranks.ok());
    OnAllRanks(*ranks,
               [](Communicator& group) { LOCKSTEP_EXPECT_OK(Measure(group)); });
  }
}

TEST(Pairs, AreLeftOutWhenTheTimeIsOver) {
  LocalGroupOptions options;
  options.size = 4;
  const auto ranks = MakeLocalGroup(options);
  ASSERT_TRUE(ranks.ok());
  OnAllRanks(*ranks, [](Communicator& group) {
    PairOptions pair_options;
    pair_options.bytes = 1000;
    int rounds = 0;
    pair_options.goes_on = [&rounds, &group](absl::Duration) {
      EXPECT_EQ(group.rank(), 0);
      return rounds++ < 2;
    };
    const auto pairs = MeasurePairs(group, {0, 1, 2}, pair_options);
    ASSERT_TRUE(pairs.ok());
    EXPECT_LE(pairs->size(), 2u);
    EXPECT_EQ(rounds, group.rank() == 0 ? 3 : 0);
  });
}

// Returns all pairs of some ranks with the same speed.
std::vector<PairSpeed> Equal(int ranks, bool is_local, double limit) {
  std::vector<PairSpeed> pairs;
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) {
      pairs.push_back({a, b, 20e-6, 2e9, is_local, limit});
    }
  }
  return pairs;
}

TEST(JudgePairs, ComparesWithTheirLimit) {
  const Finding local = JudgePairs("shm", Equal(4, true, 4e9));
  EXPECT_EQ(local.check, "pairs, shm");
  EXPECT_EQ(local.verdict, Verdict::kPass);
  EXPECT_EQ(local.text,
            "on one machine 20 us, 2 GB/s (50 % of copies of memory)");
  EXPECT_EQ(JudgePairs("shm", Equal(4, true, 50e9)).verdict, Verdict::kWarning);
  const Finding far = JudgePairs("tcp", Equal(4, false, 3e9));
  EXPECT_EQ(far.verdict, Verdict::kPass);
  EXPECT_EQ(far.text, "between machines 20 us, 2 GB/s (67 % of the link)");
  const Finding slow = JudgePairs("tcp", Equal(4, false, 5e9));
  EXPECT_EQ(slow.verdict, Verdict::kWarning);
  EXPECT_THAT(slow.remedy, HasSubstr("world.interface"));
}

TEST(JudgePairs, DoesNotJudgeWithoutALimit) {
  const Finding finding = JudgePairs("tcp", Equal(4, false, 0));
  EXPECT_EQ(finding.verdict, Verdict::kNotJudged);
  EXPECT_THAT(finding.text, HasSubstr("not judged: no limit is known"));
  EXPECT_THAT(finding.remedy, IsEmpty());
}

TEST(JudgePairs, NamesAPairThatIsSlowerThanTheOthers) {
  std::vector<PairSpeed> pairs = Equal(4, true, 4e9);
  pairs[1].bytes_per_second = 0.99e9;
  const Finding slow = JudgePairs("shm", pairs);
  EXPECT_EQ(slow.verdict, Verdict::kWarning);
  EXPECT_THAT(slow.remedy, HasSubstr("processors"));
  EXPECT_THAT(slow.text, AllOf(HasSubstr("ranks 0 and 2 (20 us, 0.99 GB/s)"),
                               Not(HasSubstr("always"))));
  pairs[1].bytes_per_second = 1.01e9;
  EXPECT_EQ(JudgePairs("shm", pairs).verdict, Verdict::kPass);
  pairs[1].latency = 81e-6;
  EXPECT_EQ(JudgePairs("shm", pairs).verdict, Verdict::kWarning);
  pairs[1].latency = 79e-6;
  EXPECT_EQ(JudgePairs("shm", pairs).verdict, Verdict::kPass);
}

TEST(JudgePairs, DoesNotCompareRanksThatShareAProcessor) {
  std::vector<PairSpeed> pairs = Equal(4, true, 4e9);
  pairs[1].bytes_per_second = 0.1e9;
  pairs[1].has_processors = false;
  EXPECT_EQ(JudgePairs("shm", pairs).verdict, Verdict::kPass);
  // Where all do, there is nothing by which they can be judged.
  for (PairSpeed& pair : pairs) pair.has_processors = false;
  EXPECT_EQ(JudgePairs("shm", pairs).verdict, Verdict::kNotJudged);
  EXPECT_THAT(JudgePairs("shm", pairs).text,
              HasSubstr("not judged: ranks share processors"));
}

TEST(JudgePairs, NamesTheRankThatAllSlowPairsHave) {
  std::vector<PairSpeed> pairs = Equal(8, true, 4e9);
  for (PairSpeed& pair : pairs) {
    if (pair.b == 5 || pair.a == 5) pair.bytes_per_second = 0.5e9;
  }
  const Finding slow = JudgePairs("shm", pairs);
  EXPECT_THAT(slow.text, AllOf(HasSubstr("always with rank 5"),
                               HasSubstr("and 3 more pairs")));
  EXPECT_EQ(SlowPairs(pairs).size(), 7u);
}

// A pair between machines is not compared with those of one machine, and where
// there are only two pairs, none is an exception.
TEST(JudgePairs, ComparesLikeWithLike) {
  std::vector<PairSpeed> pairs = Equal(4, true, 4e9);
  pairs[0].is_local = pairs[1].is_local = pairs[2].is_local = false;
  for (int i = 0; i < 3; ++i) {
    pairs[i].bytes_per_second = 0.1e9;
    pairs[i].limit = 0.12e9;
  }
  EXPECT_EQ(JudgePairs("tcp", pairs).verdict, Verdict::kPass);
  std::vector<PairSpeed> two = {{0, 1, 20e-6, 2e9, true, 4e9},
                                {0, 2, 20e-6, 0.3e9, true, 4e9}};
  EXPECT_THAT(SlowPairs(two), IsEmpty());
}

TEST(Pairs, HaveTheBetterTimesIfTheyAreMeasuredAgain) {
  std::vector<PairSpeed> pairs = {{0, 1, 20e-6, 2e9}, {0, 2, 20e-6, 2e9}};
  TakeBetter({{0, 2, 10e-6, 1e9}, {1, 2, 1e-6, 9e9}}, pairs);
  EXPECT_EQ(pairs[0].latency, 20e-6);
  EXPECT_EQ(pairs[1].latency, 10e-6);
  EXPECT_EQ(pairs[1].bytes_per_second, 2e9);
  TakeBetter({{0, 1, 30e-6, 3e9}}, pairs);
  EXPECT_EQ(pairs[0].latency, 20e-6);
  EXPECT_EQ(pairs[0].bytes_per_second, 3e9);
}

TEST(Pairs, SurviveTheWayToRankZero) {
  const auto read = DecodePairs(Encode(Equal(3, false, 0)));
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), 3u);
  EXPECT_EQ((*read)[2].a, 1);
  EXPECT_EQ((*read)[2].b, 2);
  EXPECT_DOUBLE_EQ((*read)[2].latency, 20e-6);
  EXPECT_DOUBLE_EQ((*read)[2].bytes_per_second, 2e9);
  EXPECT_THAT(DecodePairs(""), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(DecodePairs("1 2 3"), StatusIs(absl::StatusCode::kInternal));
}

}  // namespace
}  // namespace lockstep
