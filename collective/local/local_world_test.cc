#include "lockstep/collective/local/local_world.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/testing/blame_matchers.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

absl::Status SumRanks(Communicator& group) {
  std::vector<float> values(10, static_cast<float>(group.rank()));
  const Buffer buffer = BufferOf(values);
  LOCKSTEP_RETURN_IF_ERROR(
      Wait(group.AllReduce(buffer, buffer, ReduceOp::kSum)));
  const int size = group.size();
  EXPECT_THAT(values, Each(static_cast<float>(size * (size - 1)) / 2));
  return absl::OkStatus();
}

TEST(LocalWorld, RunsEachRankWithItsWorld) {
  EXPECT_THAT(LocalWorld(3).Run([](World& world) -> absl::Status {
    EXPECT_EQ(world.size(), 3);
    EXPECT_EQ(world.local_rank(), world.rank());
    EXPECT_EQ(world.local_size(), 3);
    EXPECT_EQ(world.AutoBackend(), "local");
    EXPECT_THAT(world.description(), HasSubstr("a thread of this process"));
    EXPECT_EQ(world.steady_offset()->error, absl::ZeroDuration());
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
    LOCKSTEP_RETURN_IF_ERROR(SumRanks(*group));
    if (world.rank() == 1) return absl::OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(const auto pair, group->Split("pair", {2, 0}));
    EXPECT_EQ(pair->rank(), world.rank() == 2 ? 0 : 1);
    return Wait(pair->Barrier());
  }),
              AllOf(SizeIs(3), Each(IsOk())));
}

TEST(LocalWorld, HasTheOtherBackends) {
  EXPECT_THAT(LocalWorld(2).Run([](World& world) -> absl::Status {
    GroupOptions options;
    options.backend = "shm";
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup(options));
    return SumRanks(*group);
  }),
              Each(IsOk()));
}

TEST(LocalWorld, MakesAGroupAgain) {
  EXPECT_THAT(LocalWorld(2).Run([](World& world) -> absl::Status {
    {
      LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
      LOCKSTEP_RETURN_IF_ERROR(Wait(group->Barrier()));
      if (world.rank() == 1) group->Abort(absl::InternalError("again"));
      EXPECT_THAT(Wait(group->Barrier()), StatusIs(absl::StatusCode::kAborted));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
    return SumRanks(*group);
  }),
              Each(IsOk()));
}

TEST(LocalWorld, ReturnsWhatEachRankReturns) {
  const std::vector<absl::Status> ended =
      LocalWorld(3).Run([](World& world) -> absl::Status {
        if (world.rank() == 1) return absl::DataLossError("no data");
        if (world.rank() == 2) throw std::runtime_error("a mistake");
        return absl::OkStatus();
      });
  EXPECT_THAT(ended, ElementsAre(IsOk(), StatusIs(absl::StatusCode::kDataLoss),
                                 StatusIs(absl::StatusCode::kUnknown,
                                          HasSubstr("a mistake"))));
}

TEST(LocalWorld, ARankThatReturnsHasLeft) {
  const std::vector<absl::Status> ended =
      LocalWorld(2).Run([](World& world) -> absl::Status {
        if (world.rank() == 1) return absl::OkStatus();
        LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
        return Wait(group->Barrier());
      });
  EXPECT_THAT(ended[0],
              Blames(absl::StatusCode::kUnavailable, Blame::Cause::kLeft, {1}));
}

TEST(LocalWorld, TellsOfSlowOperations) {
  Mutex mutex;
  CondVar changed;
  std::string told;
  EXPECT_THAT(LocalWorld(2).Run([&](World& world) -> absl::Status {
    GroupOptions options;
    options.slow = absl::Milliseconds(10);
    if (world.rank() == 0) {
      options.on_slow = [&](absl::string_view what) {
        MutexLock lock(mutex);
        told = std::string(what);
        changed.NotifyAll();
      };
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup(options));
    // Rank 1 comes when rank 0 has been told that it has not.
    if (world.rank() == 1) {
      MutexLock lock(mutex);
      while (told.empty()) changed.Wait(mutex);
    }
    return Wait(group->Barrier());
  }),
              Each(IsOk()));
  EXPECT_THAT(told, HasSubstr("rank 1"));
}

TEST(LocalWorld, RefusesWhatMakesNoSense) {
  for (const int size : {0, 4097}) {
    EXPECT_THAT(LocalWorld(size).Run([](World&) { return absl::OkStatus(); }),
                ElementsAre(StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("1 to 4096 ranks"))));
  }
}

}  // namespace
}  // namespace lockstep
