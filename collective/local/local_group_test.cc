#include "lockstep/collective/local/local_group.h"

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/held.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/testing/blame_matchers.h"
#include "lockstep/collective/testing/conformance.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::unique_ptr<Communicator>> Make(int size) {
  LocalGroupOptions options;
  options.size = size;
  return *MakeLocalGroup(options);
}

TEST(LocalGroup, Conforms) { ExpectConforms(Make); }

TEST(LocalGroup, RefusesWhatMakesNoSense) {
  LocalGroupOptions options;
  options.size = 0;
  EXPECT_THAT(MakeLocalGroup(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("size should be 1 to 4096, but got size=0")));
  options.size = 2;
  options.deadline = absl::ZeroDuration();
  EXPECT_THAT(
      MakeLocalGroup(options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deadline=0")));
}

TEST(LocalGroup, TakesHostMemoryAlone) {
  const auto ranks = Make(1);
  float value = 0;
  Buffer buffer = BufferOf(absl::Span<float>(&value, 1));
  buffer.device.kind = Device::Kind::kCuda;
  EXPECT_THAT(ranks[0]->AllReduce(buffer, buffer, ReduceOp::kSum),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("use the nccl backend")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, ranks[0]->Barrier());
  EXPECT_THAT(work.WaitOnStream(Stream(nullptr)),
              StatusIs(absl::StatusCode::kUnimplemented));
  // The refused call has no number.
  EXPECT_TRUE(work.Done());
}

TEST(LocalGroup, InputAndOutputMayStandSideBySide) {
  const auto ranks = Make(1);
  std::vector<float> values = {1, 2, 3, 4};
  const Buffer left = BufferOf(absl::MakeSpan(values).first(2));
  const Buffer right = BufferOf(absl::MakeSpan(values).last(2));
  LOCKSTEP_EXPECT_OK(Wait(ranks[0]->AllReduce(left, right, ReduceOp::kSum)));
  EXPECT_THAT(values, ElementsAre(1, 2, 1, 2));
  values = {1, 2, 3, 4};
  LOCKSTEP_EXPECT_OK(Wait(ranks[0]->AllReduce(right, left, ReduceOp::kSum)));
  EXPECT_THAT(values, ElementsAre(3, 4, 3, 4));
}

TEST(LocalGroup, CanBeMadeAgainAfterAFailure) {
  Held before;
  for (int i = 0; i < 100; ++i) {
    if (i == 20) before = HeldNow();
    const auto ranks = Make(3);
    OnAllRanks(ranks, [](Communicator& rank) {
      if (rank.rank() == 0) rank.Abort(absl::InternalError("again"));
      const absl::StatusOr<Work> work = rank.Barrier();
      EXPECT_FALSE(work.ok() && work->Wait().ok());
    });
  }
  EXPECT_EQ(WhatGrew(GrowthSince(before)), "");
}

// A rank that drops its communicator has left the group.
TEST(LocalGroup, ADroppedRankHasLeft) {
  auto ranks = Make(2);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, ranks[0]->Barrier());
  ranks[1] = nullptr;
  const absl::Status status = work.Wait();
  ASSERT_THAT(status, AllOf(Blames(absl::StatusCode::kUnavailable,
                                   Blame::Cause::kLeft, {1}),
                            BlamesIn("barrier() #1 of group 'world'", 1)));
  EXPECT_EQ(BlameOf(status)->ranks[0].last, "");
  ranks[0] = nullptr;
  EXPECT_TRUE(work.Done());
}

TEST(LocalGroup, MessagesToAndFromARankThatHasLeftFail) {
  for (const bool sends : {true, false}) {
    const auto ranks = Make(2);
    float value = 0;
    const Buffer buffer = BufferOf(&value, 1);
    LOCKSTEP_EXPECT_OK(ranks[1]->Close());
    const absl::StatusOr<Work> work =
        sends ? ranks[0]->Send(buffer, 1) : ranks[0]->Recv(buffer, 1);
    EXPECT_THAT(work.status(), Blames(absl::StatusCode::kUnavailable,
                                      Blame::Cause::kLeft, {1}));
  }
}

// The buffers of a rank that drops its communicator may be freed with it.
TEST(LocalGroup, WhatADroppedRankHasIssuedIsDoneByNobody) {
  auto ranks = Make(2);
  std::vector<float> values(2, 1);
  auto gone = std::make_unique<std::vector<float>>(2, 2);
  const Buffer buffer = BufferOf(*gone);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const Work work, ranks[0]->AllReduce(buffer, buffer, ReduceOp::kSum));
  ranks[0] = nullptr;
  gone = nullptr;
  const Buffer other = BufferOf(absl::MakeSpan(values));
  for (const absl::Status& status :
       {work.Wait(),
        ranks[1]->AllReduce(other, other, ReduceOp::kSum).status()}) {
    // The group does not fail in one operation.
    ASSERT_THAT(status, AllOf(Blames(absl::StatusCode::kUnavailable,
                                     Blame::Cause::kLeft, {0}),
                              BlamesIn("", 0)));
    EXPECT_EQ(BlameOf(status)->ranks[0].last,
              "all_reduce(2 x f32, sum) #1 of group 'world'");
  }
  EXPECT_EQ(values, std::vector<float>(2, 1));
}

// Returns a matcher of the verdict that these ranks wait for each other.
auto Deadlocks(const std::vector<int>& ranks) {
  return AllOf(Blames(absl::StatusCode::kFailedPrecondition,
                      Blame::Cause::kDiffer, ranks),
               BlamesIn("", 0));
}

// Three ranks, each of which waits for the next, are found.
TEST(LocalGroup, GroupsInDifferentOrdersAreFound) {
  OnAllRanks(Make(3), [](Communicator& rank) {
    std::vector<std::unique_ptr<Communicator>> pairs(3);
    for (int i = 0; i < 3; ++i) {
      const int next = (i + 1) % 3;
      if (rank.rank() != i && rank.rank() != next) continue;
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          pairs[i], rank.Split(absl::StrCat("pair-", i), {i, next}));
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work,
                                  pairs[rank.rank()]->Barrier());
    const absl::Status status = work.Wait();
    EXPECT_THAT(status, Deadlocks({0, 1, 2}));
    const Blame blame = BlameOf(status).value_or(Blame());
    for (const Blame::Rank& each : blame.ranks) {
      EXPECT_EQ(each.last,
                absl::StrCat("barrier() #1 of group 'pair-", each.rank, "'"));
    }
  });
}

// Two ranks are also found if they wait for each other only after a third one
// has come.
TEST(LocalGroup, GroupsInDifferentOrdersAreFoundHoweverLateTheyMeet) {
  OnAllRanks(Make(3), [](Communicator& rank) {
    std::unique_ptr<Communicator> pair;
    if (rank.rank() != 1) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(pair, rank.Split("pair", {0, 2}));
    }
    // Longer than a wait that counts as slow. A shorter sleep would pass, too.
    if (rank.rank() == 1) absl::SleepFor(absl::Milliseconds(1500));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work first, rank.Barrier());
    if (rank.rank() == 1) {
      LOCKSTEP_EXPECT_OK(first.Wait());
      return;
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const Work work, rank.rank() == 0 ? rank.Barrier() : pair->Barrier());
    const absl::Status status = work.Wait();
    EXPECT_THAT(status, Deadlocks({0, 2}));
    const Blame blame = BlameOf(status).value_or(Blame());
    for (const Blame::Rank& each : blame.ranks) {
      EXPECT_EQ(each.last, each.rank == 0 ? "barrier() #2 of group 'world'"
                                          : "barrier() #1 of group 'pair'");
    }
  });
}

// The group can't know what the other threads of a rank will do.
TEST(LocalGroup, ARankOfTwoThreadsMayUseGroupsInAnyOrder) {
  OnAllRanks(Make(2), [](Communicator& rank) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto a, rank.Split("a", {0, 1}));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto b, rank.Split("b", {0, 1}));
    const bool turned = rank.rank() == 1;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work first,
                                  (turned ? b : a)->Barrier());
    std::thread waiter([&first] { LOCKSTEP_EXPECT_OK(first.Wait()); });
    // Longer than a wait that counts as slow. A shorter sleep would pass, too.
    absl::SleepFor(absl::Milliseconds(1100));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work second,
                                  (turned ? a : b)->Barrier());
    LOCKSTEP_EXPECT_OK(second.Wait());
    waiter.join();
  });
}

}  // namespace
}  // namespace lockstep
