#include "lockstep/session/shard_watch.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_session {
namespace {

using ::testing::HasSubstr;

// A step of `shards` shards with a weight, of which the last one alone has
// gradients if `has_any` is true.
absl::Status StepOf(int shards, bool has_any, ShardWatch& watch) {
  for (int i = 0; i < shards; ++i) {
    watch.EndShard(/*has_weight=*/true,
                   /*is_zero=*/!has_any || i + 1 < shards);
  }
  // Shards without rows tell nothing.
  watch.EndShard(/*has_weight=*/false, /*is_zero=*/true);
  return watch.EndStep();
}

// Returns the number of steps after which the watch finds the trainer.
int StepsUntilFound(int shards) {
  ShardWatch watch;
  int steps = 1;
  while (StepOf(shards, true, watch).ok()) {
    ++steps;
    // Steps without any gradients neither help nor hurt.
    LOCKSTEP_EXPECT_OK(StepOf(shards, false, watch));
  }
  return steps;
}

TEST(ShardWatch, FindsATrainerThatAddsUpByItself) {
  EXPECT_EQ(StepsUntilFound(24), 5);
  EXPECT_EQ(StepsUntilFound(8), 7);
  EXPECT_EQ(StepsUntilFound(2), 20);
  ShardWatch watch;
  absl::Status found;
  while (found.ok()) found = StepOf(24, true, watch);
  EXPECT_THAT(found, StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr("in each of 5 steps, the gradients")));
}

TEST(ShardWatch, OneShardTellsNothing) {
  ShardWatch watch;
  for (int step = 0; step < 100; ++step) {
    LOCKSTEP_EXPECT_OK(StepOf(1, true, watch));
  }
  EXPECT_TRUE(watch.is_on());
}

// Gradients of another shard than the last one show that the trainer gives each
// shard its own, whatever comes later.
TEST(ShardWatch, IsOffWhenAnotherShardHasGradients) {
  ShardWatch watch;
  for (int step = 0; step < 4; ++step) {
    LOCKSTEP_EXPECT_OK(StepOf(24, true, watch));
  }
  EXPECT_TRUE(watch.is_on());
  watch.EndShard(true, true);
  watch.EndShard(true, false);
  EXPECT_TRUE(watch.is_on());
  watch.EndShard(true, true);
  EXPECT_FALSE(watch.is_on());
  LOCKSTEP_EXPECT_OK(watch.EndStep());
  for (int step = 0; step < 100; ++step) {
    LOCKSTEP_EXPECT_OK(StepOf(24, true, watch));
  }
}

}  // namespace
}  // namespace lockstep::internal_session
