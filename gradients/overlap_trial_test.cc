#include "lockstep/gradients/overlap_trial.h"

#include <limits>

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

TEST(OverlapTrial, AStepThatDoesNotCountIsRepeated) {
  OverlapTrial trial(Overlap::kAuto);
  trial.Begin();
  for (int i = 0; i < 100; ++i) {
    trial.Add(std::numeric_limits<double>::quiet_NaN());
    EXPECT_TRUE(trial.is_measuring());
  }
  for (int i = 0; i < 15; ++i) {
    trial.Add(1);
    EXPECT_TRUE(trial.is_measuring());
  }
  trial.Add(1);
  EXPECT_FALSE(trial.is_measuring());
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
