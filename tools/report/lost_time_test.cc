#include "lockstep/tools/report/lost_time.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/tools/records/rank_records.h"

namespace lockstep {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using Kind = RunVerdict::Kind;
using Place = RunVerdict::Place;

// The seconds that a rank spends in a step before it waits for the others.
struct Work {
  double for_data = 0;
  double own = 0.01;
  double between = 0;
};

// Ranks that average at the end of each step. They all go on when the last one
// has come, and `transfer` seconds have passed.
class Ranks {
 public:
  using Plan = std::function<Work(int64_t rank, int64_t step)>;

  explicit Ranks(
      int64_t size, int64_t steps, const Plan& plan,
      const std::function<double(int64_t step)>& transfer = [](int64_t) {
        return 0.0001;
      }) {
    for (int64_t rank = 0; rank < size; ++rank) {
      runs_[rank].host = absl::StrCat("trainer-", rank);
    }
    for (int64_t step = 1; step <= steps; ++step) {
      double last = 0;
      for (int64_t rank = 0; rank < size; ++rank) {
        const Work work = plan(rank, step);
        last = std::max(last, work.for_data + work.own + work.between);
      }
      for (int64_t rank = 0; rank < size; ++rank) {
        const Work work = plan(rank, step);
        const double all = last + transfer(step);
        StepTimes times;
        times.step = step;
        times.between = static_cast<float>(work.between);
        times.collectives = 1;
        times.whole = static_cast<float>(all - work.between);
        times.for_data = static_cast<float>(work.for_data);
        times.blocked =
            static_cast<float>(all - work.between - work.for_data - work.own);
        runs_[rank].steps.push_back(times);
      }
    }
  }

  RankRun& run(int64_t rank) { return runs_[rank]; }
  void Remove(int64_t rank) { runs_.erase(rank); }

  LostTime Find(int64_t size = -1) const {
    std::map<int64_t, const RankRun*> runs;
    for (const auto& [rank, run] : runs_) runs[rank] = &run;
    return FindLostTime(runs,
                        size < 0 ? static_cast<int64_t>(runs_.size()) : size);
  }

 private:
  std::map<int64_t, RankRun> runs_;
};

TEST(LostTimeTest, LittleLostTimeIsHealthy) {
  const Ranks ranks(4, 50, [](int64_t, int64_t) { return Work(); });
  const LostTime lost = ranks.Find();
  EXPECT_EQ(lost.verdict.kind, Kind::kHealthy);
  EXPECT_THAT(lost.verdict.ranks, IsEmpty());
  EXPECT_EQ(lost.verdict.sentence,
            "Healthy: 1.0 % of the time is lost to waits for data and "
            "in collectives.");
  EXPECT_EQ(lost.verdict.advice, "");
  EXPECT_EQ(lost.steps, 49);
  EXPECT_EQ(lost.left_out, 0);
}

TEST(LostTimeTest, RanksThatAllWaitForData) {
  const Ranks ranks(3, 50, [](int64_t rank, int64_t) {
    return Work{0.01 + 0.0001 * static_cast<double>(rank)};
  });
  const RunVerdict verdict = ranks.Find().verdict;
  EXPECT_EQ(verdict.kind, Kind::kData);
  EXPECT_THAT(verdict.lost_share, DoubleNear(0.5, 0.01));
  EXPECT_THAT(verdict.sentence,
              HasSubstr("Data-bound: 51 % of the time is lost, 99 % of that "
                        "since ranks wait for data."));
  EXPECT_THAT(verdict.advice, HasSubstr("num_workers"));
}

TEST(LostTimeTest, OneRankThatWaitsForData) {
  Ranks ranks(3, 50,
              [](int64_t rank, int64_t) { return Work{rank == 2 ? 0.01 : 0}; });
  RunVerdict verdict = ranks.Find().verdict;
  EXPECT_EQ(verdict.kind, Kind::kSlowRanks);
  EXPECT_THAT(verdict.ranks, ElementsAre(2));
  EXPECT_EQ(verdict.place, Place::kData);
  EXPECT_THAT(verdict.sentence,
              HasSubstr("since the others wait for rank 2 (trainer-2), which "
                        "waits for its data."));
  // The others read as slowly, and only the slowest is waited for.
  for (int64_t rank = 0; rank < 3; ++rank) {
    ranks.run(rank).read_steps = 100;
    ranks.run(rank).read_seconds = rank == 2 ? 2.0 : 1.9;
  }
  EXPECT_EQ(ranks.Find().verdict.kind, Kind::kData);
  ranks.run(0).read_seconds = ranks.run(1).read_seconds = 1;
  verdict = ranks.Find().verdict;
  EXPECT_EQ(verdict.kind, Kind::kSlowRanks);
  EXPECT_THAT(verdict.ranks, ElementsAre(2));
}

TEST(LostTimeTest, OneRankThatComputesLonger) {
  for (const int64_t size : {2, 3, 8}) {
    for (const int64_t slow : {int64_t{0}, size - 1}) {
      const Ranks ranks(size, 30, [&](int64_t rank, int64_t) {
        return Work{0, rank == slow ? 0.015 : 0.01};
      });
      const LostTime lost = ranks.Find();
      EXPECT_EQ(lost.verdict.kind, Kind::kSlowRanks) << size;
      EXPECT_THAT(lost.verdict.ranks, ElementsAre(slow)) << size;
      EXPECT_EQ(lost.verdict.place, Place::kOwn);
      // It comes first, since all others wait for it.
      EXPECT_EQ(lost.ranks[0].rank, slow);
      EXPECT_EQ(lost.ranks[0].times_last, 29);
      EXPECT_THAT(lost.ranks[0].late, DoubleNear(29 * 0.005, 1e-4));
      EXPECT_EQ(lost.ranks[1].times_last, 0);
    }
  }
}

TEST(LostTimeTest, OneRankThatIsLateFromBetweenItsSteps) {
  const Ranks ranks(4, 40, [](int64_t rank, int64_t step) {
    return Work{0, 0.01, rank == 0 && step % 2 == 0 ? 0.02 : 0};
  });
  const RunVerdict verdict = ranks.Find().verdict;
  EXPECT_EQ(verdict.kind, Kind::kSlowRanks);
  EXPECT_THAT(verdict.ranks, ElementsAre(0));
  EXPECT_EQ(verdict.place, Place::kBetween);
  EXPECT_THAT(verdict.advice, HasSubstr("checkpoints less often"));
}

TEST(LostTimeTest, RanksThatAreLateInTurns) {
  for (const int64_t size : {2, 3, 5}) {
    const Ranks ranks(size, 60, [&](int64_t rank, int64_t step) {
      return Work{0, rank == step % size ? 0.02 : 0.01};
    });
    const RunVerdict verdict = ranks.Find().verdict;
    EXPECT_EQ(verdict.kind, Kind::kRotating) << size;
    EXPECT_THAT(verdict.ranks, IsEmpty());
    EXPECT_EQ(verdict.place, Place::kOwn);
  }
}

TEST(LostTimeTest, ASlowLinkHoldsUpAllRanks) {
  Ranks ranks(
      3, 30, [](int64_t, int64_t) { return Work(); },
      [](int64_t) { return 0.01; });
  RunVerdict verdict = ranks.Find().verdict;
  EXPECT_EQ(verdict.kind, Kind::kCommunication);
  EXPECT_THAT(verdict.sentence, HasSubstr("Communication-bound: 50 %"));
  // Without the records of all ranks, one of the others may be the late one.
  ranks.Remove(1);
  verdict = ranks.Find(/*size=*/3).verdict;
  EXPECT_EQ(verdict.kind, Kind::kUnexplained);
  EXPECT_THAT(verdict.sentence,
              HasSubstr("a rank without records may be late"));
}

TEST(LostTimeTest, AStopOfARankIsAFewSteps) {
  const Ranks ranks(4, 100, [](int64_t rank, int64_t step) {
    return Work{0, rank == 1 && (step == 40 || step == 70) ? 3.0 : 0.01};
  });
  const RunVerdict verdict = ranks.Find().verdict;
  EXPECT_EQ(verdict.kind, Kind::kFewSteps);
  EXPECT_THAT(verdict.ranks, ElementsAre(1));
  EXPECT_THAT(verdict.steps, ElementsAre(40, 70));
  EXPECT_THAT(verdict.sentence,
              HasSubstr("in 2 of 99 steps (the worst: 40, 70), where the "
                        "others wait for rank 1 (trainer-1), whose own part"));
}

TEST(LostTimeTest, AFewStepsInWhichAllWaitForData) {
  const Ranks ranks(3, 60, [](int64_t, int64_t step) {
    return Work{step % 25 == 0 ? 0.5 : 0};
  });
  const RunVerdict verdict = ranks.Find().verdict;
  EXPECT_EQ(verdict.kind, Kind::kFewSteps);
  EXPECT_THAT(verdict.ranks, IsEmpty());
  EXPECT_EQ(verdict.place, Place::kData);
  EXPECT_THAT(verdict.steps, ElementsAre(25, 50));
}

TEST(LostTimeTest, AFewStepsInWhichALinkWasSlow) {
  const Ranks ranks(
      3, 30, [](int64_t, int64_t) { return Work(); },
      [](int64_t step) { return step == 7 ? 1.0 : 0.0001; });
  const RunVerdict verdict = ranks.Find().verdict;
  EXPECT_EQ(verdict.kind, Kind::kFewSteps);
  EXPECT_THAT(verdict.ranks, IsEmpty());
  EXPECT_EQ(verdict.place, Place::kUnknown);
  EXPECT_THAT(verdict.sentence,
              HasSubstr("in 1 of 29 steps (step 7), where all ranks are "
                        "blocked in collectives at the same time"));
}

TEST(LostTimeTest, SeveralCausesExplainNothing) {
  const Ranks ranks(
      4, 50,
      [](int64_t rank, int64_t) { return Work{rank == 1 ? 0.006 : 0.004}; },
      [](int64_t) { return 0.004; });
  const RunVerdict verdict = ranks.Find().verdict;
  EXPECT_EQ(verdict.kind, Kind::kUnexplained);
  EXPECT_THAT(verdict.sentence, HasSubstr("no cause explains 80 % of that: "));
  EXPECT_THAT(verdict.steps, IsEmpty());
}

TEST(LostTimeTest, AMostlyLateRankIsNoTurn) {
  // Rank 0 is late in three of four steps, which is too little to be the cause
  // and too much for turns.
  const Ranks ranks(2, 81, [](int64_t rank, int64_t step) {
    return Work{0, rank == (step % 4 == 0 ? 1 : 0) ? 0.02 : 0.01};
  });
  EXPECT_EQ(ranks.Find().verdict.kind, Kind::kUnexplained);
}

TEST(LostTimeTest, ARankAloneHasNoOthers) {
  const Ranks ranks(1, 20, [](int64_t, int64_t) { return Work{0.01}; });
  const LostTime lost = ranks.Find();
  EXPECT_EQ(lost.verdict.kind, Kind::kData);
  EXPECT_THAT(lost.verdict.ranks, IsEmpty());
  EXPECT_EQ(lost.ranks[0].late, 0);
  EXPECT_EQ(lost.ranks[0].times_last, 0);
}

TEST(LostTimeTest, TheFirstStepDoesNotCount) {
  const Ranks ranks(2, 30, [](int64_t rank, int64_t step) {
    return Work{0, step == 1 && rank == 0 ? 100 : 0.01};
  });
  EXPECT_EQ(ranks.Find().verdict.kind, Kind::kHealthy);
}

TEST(LostTimeTest, FewStepsSayNothing) {
  for (const int64_t steps : {0, 1, 2, 10}) {
    const Ranks ranks(2, steps, [](int64_t, int64_t) { return Work{1}; });
    EXPECT_EQ(ranks.Find().verdict.kind, Kind::kTooShort) << steps;
  }
  const Ranks ranks(2, 11, [](int64_t, int64_t) { return Work{1}; });
  EXPECT_EQ(ranks.Find().verdict.kind, Kind::kData);
  EXPECT_EQ(FindLostTime({}, 0).verdict.kind, Kind::kTooShort);
  EXPECT_EQ(Ranks(2, 1, [](int64_t, int64_t) { return Work{1}; })
                .Find()
                .verdict.sentence,
            "Too short: 0 steps count, and a verdict takes at least 10.");
}

TEST(LostTimeTest, StepsThatSomeRanksLackAreLeftOut) {
  Ranks ranks(3, 50, [](int64_t rank, int64_t) {
    return Work{0, rank == 1 ? 0.02 : 0.01};
  });
  // Rank 0 has lost its first steps, and rank 2 its last ones and some others.
  std::vector<StepTimes>& first = ranks.run(0).steps;
  first.erase(first.begin(), first.begin() + 9);
  std::vector<StepTimes>& third = ranks.run(2).steps;
  third.resize(45);
  third.erase(third.begin() + 20, third.begin() + 25);
  const float unknown = std::numeric_limits<float>::quiet_NaN();
  ranks.run(1).steps[30].blocked = unknown;
  ranks.run(1).steps[31].for_data = -1;
  const LostTime lost = ranks.Find();
  // Steps 11 to 45 but 21 to 25, 31 and 32.
  EXPECT_EQ(lost.steps, 28);
  EXPECT_EQ(lost.left_out, 21);
  EXPECT_EQ(lost.verdict.kind, Kind::kSlowRanks);
  EXPECT_THAT(lost.verdict.ranks, ElementsAre(1));
}

TEST(LostTimeTest, RanksWithoutCommonStepsSayNothing) {
  Ranks ranks(2, 40, [](int64_t, int64_t) { return Work{1}; });
  ranks.run(0).steps.resize(20);
  ranks.run(1).steps.erase(ranks.run(1).steps.begin(),
                           ranks.run(1).steps.begin() + 20);
  const LostTime lost = ranks.Find();
  EXPECT_EQ(lost.verdict.kind, Kind::kTooShort);
  EXPECT_EQ(lost.steps, 0);
}

TEST(LostTimeTest, TheTimesOfARankAddUp) {
  const Ranks ranks(
      2, 21,
      [](int64_t rank, int64_t) {
        return Work{0.001, rank == 0 ? 0.01 : 0.008, 0.002};
      },
      [](int64_t) { return 0.0005; });
  for (const RankTime& rank : ranks.Find().ranks) {
    EXPECT_THAT(rank.whole, DoubleNear(20 * 0.0135, 1e-6));
    EXPECT_THAT(rank.for_data, DoubleNear(20 * 0.001, 1e-6));
    EXPECT_THAT(rank.for_others,
                DoubleNear(rank.rank == 0 ? 0 : 20 * 0.002, 1e-6));
    EXPECT_THAT(rank.in_transfer, DoubleNear(20 * 0.0005, 1e-6));
    EXPECT_THAT(rank.between, DoubleNear(20 * 0.002, 1e-6));
    EXPECT_THAT(rank.own,
                DoubleNear(20 * (rank.rank == 0 ? 0.01 : 0.008), 1e-6));
    EXPECT_THAT(rank.median_step, DoubleNear(0.0135, 1e-6));
    EXPECT_THAT(rank.for_data + rank.for_others + rank.in_transfer +
                    rank.between + rank.own,
                DoubleNear(rank.whole, 1e-6));
  }
}

TEST(LostTimeTest, ManyRanksAreJudged) {
  const Ranks ranks(1024, 20, [](int64_t rank, int64_t) {
    return Work{0, rank == 700 ? 0.02 : 0.01};
  });
  const RunVerdict verdict = ranks.Find().verdict;
  EXPECT_EQ(verdict.kind, Kind::kSlowRanks);
  EXPECT_THAT(verdict.ranks, ElementsAre(700));
}

TEST(LostTimeTest, SeveralRanksMayBeSlow) {
  Ranks ranks(8, 40, [](int64_t rank, int64_t step) {
    const bool is_slow = rank == 2 || rank == 5;
    // They differ a little, so each is the last one now and then.
    return Work{0, is_slow ? 0.02 + 0.0002 * (step % 2 == rank % 2) : 0.01};
  });
  LostTime lost = ranks.Find();
  EXPECT_EQ(lost.verdict.kind, Kind::kSlowRanks);
  EXPECT_THAT(lost.verdict.ranks, UnorderedElementsAre(2, 5));
  EXPECT_EQ(lost.verdict.place, Place::kOwn);
  EXPECT_EQ(Name(lost.verdict), "slow ranks");
  EXPECT_THAT(lost.verdict.sentence,
              HasSubstr("since the others wait for ranks 2 and 5, whose own "
                        "part of the step takes longer."));
  EXPECT_THAT((std::vector<int64_t>{lost.ranks[0].rank, lost.ranks[1].rank}),
              UnorderedElementsAre(2, 5));
  EXPECT_THAT(lost.ranks[1].late, DoubleNear(39 * 0.0101, 1e-4));
  ranks.run(2).host = ranks.run(5).host = "bad\n";
  EXPECT_THAT(ranks.Find().verdict.sentence,
              HasSubstr("ranks 2 and 5 (bad\n), "));
}

TEST(LostTimeTest, AHostMayBeSlow) {
  Ranks ranks(16, 30, [](int64_t rank, int64_t step) {
    return Work{0,
                rank % 2 == 0 ? 0.02 + 0.0002 * (step % 8 == rank / 2) : 0.01};
  });
  for (int64_t rank = 0; rank < 16; ++rank) {
    ranks.run(rank).host = rank % 2 == 0 ? "slow" : "fast";
  }
  const RunVerdict verdict = ranks.Find().verdict;
  EXPECT_EQ(verdict.kind, Kind::kSlowRanks);
  EXPECT_THAT(verdict.ranks, SizeIs(8));
  EXPECT_THAT(verdict.sentence, HasSubstr("(slow), whose own part"));
}

TEST(LostTimeTest, ARankWithMoreSamplesIsTold) {
  Ranks ranks(3, 30, [](int64_t rank, int64_t) {
    return Work{0, rank == 0 ? 0.02 : 0.01};
  });
  for (int64_t rank = 0; rank < 3; ++rank) {
    for (StepTimes& step : ranks.run(rank).steps) {
      step.rows = rank == 0 ? 16 : 8;
    }
  }
  EXPECT_THAT(ranks.Find().verdict.sentence,
              HasSubstr("takes longer (it has 16 samples in a step, and the "
                        "others have 8)."));
}

TEST(LostTimeTest, ARankWithoutCollectivesIsNotLate) {
  Ranks ranks(3, 30, [](int64_t rank, int64_t) {
    return Work{0, rank == 1 ? 0.02 : 0.01};
  });
  for (StepTimes& step : ranks.run(2).steps) {
    step.collectives = 0;
    step.blocked = 0;
  }
  const LostTime lost = ranks.Find();
  EXPECT_EQ(lost.verdict.kind, Kind::kSlowRanks);
  EXPECT_THAT(lost.verdict.ranks, ElementsAre(1));
  EXPECT_EQ(lost.ranks.back().times_last, 0);
}

TEST(LostTimeTest, SeveralWaitsInAStepAreNoTransfer) {
  // In each step, rank 0 is late in the first collective, and rank 1 in the
  // second one, so both are blocked for as long.
  Ranks ranks(
      2, 30, [](int64_t, int64_t) { return Work(); },
      [](int64_t) { return 0.01; });
  EXPECT_EQ(ranks.Find().verdict.kind, Kind::kCommunication);
  for (int64_t rank = 0; rank < 2; ++rank) {
    CollectiveTimes times;
    times.step = 5;
    times.took = {rank == 0 ? 0.0001F : 0.01F, rank == 0 ? 0.01F : 0.0001F};
    ranks.run(rank).collectives = {times};
  }
  const LostTime lost = ranks.Find();
  EXPECT_EQ(lost.verdict.kind, Kind::kUnexplained);
  EXPECT_THAT(lost.verdict.of_communication, DoubleNear(0.02, 0.01));
  EXPECT_GT(lost.ranks[0].for_others, 20 * lost.ranks[0].in_transfer);
  // Collectives of which a rank lacks one tell nothing.
  ranks.run(1).collectives[0].took.pop_back();
  EXPECT_EQ(ranks.Find().verdict.kind, Kind::kCommunication);
}

TEST(LostTimeTest, AStepThatIsLateFromOutsideHasNoPlace) {
  // Rank 0 does something between two loops over steps, which is in no metric.
  Ranks ranks(2, 30, [](int64_t, int64_t) { return Work(); });
  for (const int64_t step : {9, 19}) {
    ranks.run(1).steps[step].blocked += 3;
    ranks.run(1).steps[step].whole += 3;
  }
  const RunVerdict verdict = ranks.Find().verdict;
  EXPECT_EQ(verdict.kind, Kind::kFewSteps);
  EXPECT_THAT(verdict.ranks, ElementsAre(0));
  EXPECT_EQ(verdict.place, Place::kUnknown);
}

TEST(LostTimeTest, WhatFollowsTheAverageDelaysTheNextStep) {
  Ranks ranks(2, 60, [](int64_t, int64_t) { return Work(); });
  for (const int64_t step : {20, 40}) {
    ranks.run(1).steps[step].whole += 3;
    ranks.run(0).steps[step + 1].whole += 3;
    ranks.run(0).steps[step + 1].blocked += 3;
  }
  const RunVerdict verdict = ranks.Find().verdict;
  EXPECT_EQ(verdict.kind, Kind::kFewSteps);
  EXPECT_THAT(verdict.ranks, ElementsAre(1));
  EXPECT_EQ(verdict.place, Place::kOwn);
}

TEST(LostTimeTest, MuchTimeBetweenStepsIsTold) {
  Ranks ranks(2, 30, [](int64_t, int64_t) { return Work{0, 0.01, 0.09}; });
  RunVerdict verdict = ranks.Find().verdict;
  EXPECT_EQ(verdict.kind, Kind::kHealthy);
  EXPECT_THAT(verdict.sentence,
              HasSubstr("in collectives, but 90 % of the time passes between "
                        "steps (checkpoints, hooks, sinks)."));
  EXPECT_THAT(verdict.advice, HasSubstr("Save checkpoints less often"));
  ranks = Ranks(2, 30, [](int64_t, int64_t) { return Work{0.1, 0.01, 0.09}; });
  verdict = ranks.Find().verdict;
  EXPECT_EQ(verdict.kind, Kind::kData);
  EXPECT_THAT(verdict.advice, HasSubstr(" Besides, 45 % of the time passes"));
}

TEST(LostTimeTest, TheWorstStepsAreListed) {
  const Ranks ranks(2, 40, [](int64_t rank, int64_t step) {
    return Work{0, rank == 1 && step == 7 ? 0.02 : 0.01};
  });
  const LostTime lost = ranks.Find();
  ASSERT_THAT(lost.worst, SizeIs(LostTime::kMostWorst));
  EXPECT_EQ(lost.worst[0].step, 7);
  EXPECT_EQ(lost.worst[0].last, 1);
  EXPECT_THAT(lost.worst[0].lost, DoubleNear(0.0102, 1e-5));
  EXPECT_THAT(lost.worst[0].longest, DoubleNear(0.0201, 1e-5));
}

TEST(LostTimeTest, StepsWithAnyNumbersAreJudged) {
  Ranks ranks(2, 30, [](int64_t rank, int64_t) {
    return Work{0, rank == 1 ? 0.02 : 0.01};
  });
  for (int64_t rank = 0; rank < 2; ++rank) {
    for (StepTimes& step : ranks.run(rank).steps) {
      step.step *= int64_t{1} << 54;
    }
  }
  EXPECT_EQ(ranks.Find().verdict.kind, Kind::kSlowRanks);
}

TEST(LostTimeTest, NamesAreThoseOfTheDocuments) {
  RunVerdict verdict;
  const std::pair<Kind, const char*> names[] = {
      {Kind::kTooShort, "too short"},
      {Kind::kHealthy, "healthy"},
      {Kind::kFewSteps, "few steps"},
      {Kind::kSlowRanks, "slow ranks"},
      {Kind::kRotating, "rotating"},
      {Kind::kData, "data"},
      {Kind::kCommunication, "communication"},
      {Kind::kUnexplained, "unexplained"}};
  for (const auto& [kind, name] : names) {
    verdict.kind = kind;
    EXPECT_EQ(Name(verdict), name);
  }
  verdict.kind = Kind::kSlowRanks;
  verdict.ranks = {3};
  EXPECT_EQ(Name(verdict), "one slow rank");
}

}  // namespace
}  // namespace lockstep
