#include "lockstep/gradients/overlap_trial.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/gradients/gradients_options.h"

namespace lockstep::internal_gradients {
namespace {

using Overlap = GradientsOptions::Overlap;
using testing::HasSubstr;

// Measures steps that take so many seconds by each way. Returns their number.
int Measure(OverlapTrial& trial, double with, double without) {
  trial.Begin();
  int steps = 0;
  while (trial.is_measuring()) {
    // The first step of each way, and a single one later, take long.
    const bool is_slow = steps < 2 || steps == 6;
    const double seconds = trial.overlaps() ? with : without;
    trial.Add(is_slow ? 100 * seconds : seconds);
    ++steps;
  }
  return steps;
}

TEST(OverlapTrial, DecidesByTheMediansOfBothWays) {
  OverlapTrial faster(Overlap::kAuto);
  EXPECT_FALSE(faster.overlaps());
  EXPECT_FALSE(faster.decision().is_final);
  EXPECT_THAT(faster.decision().why, HasSubstr("MarkReady"));
  EXPECT_EQ(Measure(faster, 0.0121, 0.0153), 16);
  EXPECT_TRUE(faster.decision().on);
  EXPECT_TRUE(faster.decision().is_final);
  EXPECT_EQ(faster.decision().why,
            "a step takes 12.1ms with overlap and 15.3ms without, medians of 7 "
            "or more");

  OverlapTrial slower(Overlap::kAuto);
  EXPECT_EQ(Measure(slower, 0.0153, 0.0121), 16);
  EXPECT_FALSE(slower.decision().on);
  EXPECT_TRUE(slower.decision().is_final);
}

TEST(OverlapTrial, TakesOverlapOnlyForAGain) {
  OverlapTrial little(Overlap::kAuto);
  Measure(little, 0.96, 1);
  EXPECT_FALSE(little.decision().on);
  EXPECT_THAT(little.decision().why, HasSubstr("from 5 % on"));
  OverlapTrial enough(Overlap::kAuto);
  Measure(enough, 0.94, 1);
  EXPECT_TRUE(enough.decision().on);
}

// Three of the seven steps with overlap that count are slow. If the very first
// one, which is slow, too, counted, the median would be slow.
TEST(OverlapTrial, TheFirstStepOfEachWayDoesNotCount) {
  OverlapTrial trial(Overlap::kAuto);
  trial.Begin();
  for (int with = 0; trial.is_measuring();) {
    const bool is_slow = trial.overlaps() && with++ < 4;
    trial.Add(is_slow ? 10 : trial.overlaps() ? 0.5 : 1);
  }
  EXPECT_TRUE(trial.overlaps());
}

constexpr double kCountsNot = std::numeric_limits<double>::quiet_NaN();

TEST(OverlapTrial, AStepThatDoesNotCountIsRepeatedTheSameWay) {
  OverlapTrial trial(Overlap::kAuto);
  trial.Begin();
  std::string ways;
  for (int i = 0; i < 16; ++i) {
    EXPECT_TRUE(trial.is_measuring());
    const bool way = trial.overlaps();
    ways += way ? '+' : '-';
    trial.Add(kCountsNot);
    EXPECT_EQ(trial.overlaps(), way);
    trial.Add(1);
  }
  EXPECT_FALSE(trial.is_measuring());
  // A trainer with two kinds of steps in turns has both kinds in both ways.
  EXPECT_EQ(ways, "+--++--++--++--+");
}

TEST(OverlapTrial, TooFewStepsThatCountDecideAgainstOverlap) {
  OverlapTrial trial(Overlap::kAuto);
  trial.Begin();
  trial.Add(1);
  for (int i = 1; i < OverlapTrial::kMostSteps; ++i) {
    EXPECT_TRUE(trial.is_measuring());
    trial.Add(kCountsNot);
  }
  EXPECT_FALSE(trial.is_measuring());
  EXPECT_FALSE(trial.overlaps());
  EXPECT_TRUE(trial.decision().is_final);
  EXPECT_EQ(trial.decision().why,
            "of 64 steps, only 1 had marks, too few to tell");
}

TEST(OverlapTrial, ADecisionForNowIsTakenAgain) {
  OverlapTrial trial(Overlap::kAuto);
  trial.DecideForNow("there is one bucket", /*is_final=*/false);
  EXPECT_EQ(trial.state(), OverlapTrial::State::kDecided);
  EXPECT_FALSE(trial.decision().is_final);
  trial.Resume();
  EXPECT_EQ(trial.state(), OverlapTrial::State::kAwaits);
  EXPECT_THAT(trial.decision().why, HasSubstr("MarkReady"));
  Measure(trial, 1, 2);
  EXPECT_TRUE(trial.decision().on);
  trial.Resume();  // this one stays
  EXPECT_EQ(trial.state(), OverlapTrial::State::kDecided);
}

TEST(OverlapTrial, WhatIsAskedForIsNotMeasured) {
  OverlapTrial on(Overlap::kOn);
  EXPECT_FALSE(on.overlaps());  // no order is known
  on.Begin();
  EXPECT_TRUE(on.overlaps());
  EXPECT_TRUE(on.decision().is_final);

  const OverlapTrial off(Overlap::kOff);
  EXPECT_FALSE(off.overlaps());
  EXPECT_TRUE(off.decision().is_final);
}

}  // namespace
}  // namespace lockstep::internal_gradients
