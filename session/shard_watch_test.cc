#include "lockstep/session/shard_watch.h"

#include "gtest/gtest.h"

namespace lockstep::internal_session {
namespace {

// A step of `shards` shards with a weight, of which the last one alone has
// gradients if `has_any` is true. Returns whether the watch notices it.
bool StepOf(int shards, bool has_any, ShardWatch& watch) {
  watch.BeginStep();
  for (int i = 0; i < shards; ++i) {
    watch.EndShard(/*has_weight=*/true,
                   /*is_zero=*/!has_any || i + 1 < shards);
  }
  // Shards without rows tell nothing.
  watch.EndShard(/*has_weight=*/false, /*is_zero=*/true);
  return watch.EndStep();
}

// Returns the number of steps after which the watch notices the trainer.
int StepsUntilNoticed(int shards) {
  ShardWatch watch;
  int steps = 1;
  while (steps < 50 && !StepOf(shards, true, watch)) {
    EXPECT_EQ(watch.steps(), steps);
    ++steps;
    // Steps without any gradients neither help nor hurt.
    EXPECT_FALSE(StepOf(shards, false, watch));
  }
  EXPECT_FALSE(watch.is_on());
  EXPECT_FALSE(StepOf(shards, true, watch));  // It is noticed once.
  EXPECT_EQ(watch.steps(), steps);
  return steps;
}

TEST(ShardWatch, NoticesATrainerThatAddsUpByItself) {
  EXPECT_EQ(StepsUntilNoticed(24), 5);
  EXPECT_EQ(StepsUntilNoticed(8), 7);
  EXPECT_EQ(StepsUntilNoticed(2), 20);
}

TEST(ShardWatch, OneShardTellsNothing) {
  ShardWatch watch;
  for (int step = 0; step < 99; ++step) {
    EXPECT_FALSE(StepOf(1, true, watch));
    EXPECT_TRUE(watch.is_on());
  }
  EXPECT_FALSE(StepOf(1, true, watch));
  EXPECT_FALSE(watch.is_on()) << "it should have an end";
  EXPECT_EQ(watch.steps(), 0);
}

// Gradients of another shard than the last one show that the trainer gives each
// shard its own, whatever comes later.
TEST(ShardWatch, IsOffWhenAnotherShardHasGradients) {
  ShardWatch watch;
  for (int step = 0; step < 4; ++step) EXPECT_FALSE(StepOf(24, true, watch));
  watch.BeginStep();
  watch.EndShard(true, true);
  watch.EndShard(true, false);
  EXPECT_TRUE(watch.is_on());
  watch.EndShard(true, true);
  EXPECT_FALSE(watch.is_on());
  EXPECT_FALSE(watch.EndStep());
  EXPECT_FALSE(StepOf(24, true, watch));
}

// A step that was left has no influence on the next one.
TEST(ShardWatch, AStepMayBeLeft) {
  ShardWatch watch;
  watch.BeginStep();
  watch.EndShard(true, false);
  EXPECT_FALSE(StepOf(8, true, watch));
  EXPECT_TRUE(watch.is_on());
  EXPECT_EQ(watch.steps(), 1);
}

}  // namespace
}  // namespace lockstep::internal_session
