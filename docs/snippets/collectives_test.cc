// Compiles the examples of docs/collectives.md, which are read from the
// document.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/shard_tree.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/group_memory.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"

namespace {

using ::testing::ElementsAre;

absl::Status AWorld(absl::Span<float> gradient) {
#include "lockstep/docs/snippets/collectives/world.inc"
  return absl::OkStatus();
}

TEST(CollectivesDocument, AWorldOfOne) {
  std::vector<float> gradient = {1, 2};
  LOCKSTEP_ASSERT_OK(AWorld(absl::MakeSpan(gradient)));
  EXPECT_THAT(gradient, ElementsAre(1, 2));
}

absl::Status GroupMemory(lockstep::Communicator* group, int64_t count) {
#include "lockstep/docs/snippets/collectives/memory.inc"
  EXPECT_EQ(gradient.size(), static_cast<size_t>(count));
  return absl::OkStatus();
}

TEST(CollectivesDocument, MemoryOfAGroup) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto world,
                                lockstep::World::FromEnvironment());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto group, world->MakeGroup());
  LOCKSTEP_ASSERT_OK(GroupMemory(group.get(), 1000));
}

// The sums of ranks that are 1 for each shard.
std::vector<float> AddUp(const std::vector<lockstep::ShardRange>& sums) {
  std::vector<float> in;
  for (const lockstep::ShardRange& sum : sums) {
    in.insert(in.end(), 3, static_cast<float>(sum.end - sum.begin));
  }
  return in;
}

absl::Status Shards(lockstep::Communicator* group, std::vector<float>& out) {
#include "lockstep/docs/snippets/collectives/shards.inc"
  EXPECT_EQ(sums.size(), group->rank() == 1   ? 4u
                         : group->rank() == 0 ? 2u
                                              : 3u);
  return absl::OkStatus();
}

TEST(CollectivesDocument, Shards) {
  const auto ended =
      lockstep::LocalWorld(3).Run([](lockstep::World& world) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
        std::vector<float> out(3);
        LOCKSTEP_RETURN_IF_ERROR(Shards(group.get(), out));
        EXPECT_THAT(out, ElementsAre(24, 24, 24));
        return absl::OkStatus();
      });
  EXPECT_THAT(ended, testing::Each(lockstep::IsOk()));
}

int computed = 0;

void Compute() { ++computed; }

absl::Status Meanwhile(lockstep::Communicator* group, lockstep::Buffer buffer) {
#include "lockstep/docs/snippets/collectives/meanwhile.inc"
  EXPECT_EQ(computed, 1);
  EXPECT_GE(lockstep::TimeIn(group->RecentOperations()), absl::ZeroDuration());
  return absl::OkStatus();
}

TEST(CollectivesDocument, ComputingMeanwhile) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto world,
                                lockstep::World::FromEnvironment());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto group, world->MakeGroup());
  std::vector<float> gradient = {1, 2};
  LOCKSTEP_ASSERT_OK(
      Meanwhile(group.get(), lockstep::BufferOf(absl::MakeSpan(gradient))));
}

// These examples need a GPU, so they are only compiled.
[[maybe_unused]] absl::Status Nccl(lockstep::World* world,
                                   float* device_pointer, int64_t count,
                                   void* stream) {
#include "lockstep/docs/snippets/collectives/nccl.inc"
  return absl::OkStatus();
}

[[maybe_unused]] absl::Status NcclMemory(lockstep::Communicator* group,
                                         int64_t count) {
#include "lockstep/docs/snippets/collectives/nccl_memory.inc"
  return lockstep::Wait(
      group->AllReduce(gradient, gradient, lockstep::ReduceOp::kSum));
}

}  // namespace
