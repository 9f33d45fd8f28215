#include "lockstep/collective/local/local_group.h"

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

TEST(LocalGroup, OneThreadMayIssueForAllRanks) {
  const auto ranks = Make(3);
  std::vector<float> values = {1, 2, 4};
  std::vector<Work> works;
  for (int rank = 0; rank < 3; ++rank) {
    const Buffer buffer = BufferOf(&values[rank], 1);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        works.emplace_back(),
        ranks[rank]->AllReduce(buffer, buffer, ReduceOp::kSum));
    EXPECT_EQ(works[0].Done(), rank == 2);
  }
  for (const Work& work : works) {
    EXPECT_TRUE(work.Done());
    LOCKSTEP_EXPECT_OK(work.status());
  }
  EXPECT_THAT(values, ElementsAre(7, 7, 7));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work send,
                                ranks[0]->Send(BufferOf(&values[0], 1), 1));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work recv,
                                ranks[1]->Recv(BufferOf(&values[1], 1), 0));
  EXPECT_TRUE(send.Done());
  EXPECT_TRUE(recv.Done());
}

TEST(LocalGroup, HasNoThreadAndNoDescriptor) {
  const Held before = HeldNow();
  const auto ranks = Make(3);
  std::vector<float> values(3);
  for (const bool sends : {true, false}) {
    for (int rank = 0; rank < 3; ++rank) {
      const Buffer buffer = BufferOf(&values[rank], 1);
      if (sends) {
        LOCKSTEP_ASSERT_OK(ranks[rank]->Send(buffer, (rank + 1) % 3).status());
      } else {
        LOCKSTEP_ASSERT_OK(ranks[rank]->Recv(buffer, (rank + 2) % 3).status());
      }
    }
  }
  const Held now = HeldNow();
  EXPECT_EQ(now.threads, before.threads);
  EXPECT_EQ(now.files, before.files);
}

TEST(LocalGroup, HasUpTo4096Ranks) {
  const auto ranks = Make(4096);
  for (int i = 0; i < 2; ++i) {
    std::vector<Work> works;
    for (const auto& rank : ranks) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(works.emplace_back(), rank->Barrier());
    }
    for (const Work& work : works) ASSERT_TRUE(work.Done());
  }
}

TEST(LocalGroup, AFailureIsToldToUpTo4096Ranks) {
  const auto ranks = Make(4096);
  ranks[7]->Abort(absl::InternalError("enough"));
  for (const auto& rank : ranks) {
    ASSERT_THAT(rank->Barrier(), StatusIs(absl::StatusCode::kAborted));
  }
}

// Any rank may drop its communicator first, also the one that decides.
TEST(LocalGroup, RanksGoOnWithoutOneThatHasLeft) {
  for (int left = 0; left < 3; ++left) {
    auto ranks = Make(3);
    OnAllRanks(ranks, [left, &ranks](Communicator& rank) {
      const int me = rank.rank();
      if (me == left) {
        LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
        ranks[me] = nullptr;
        return;
      }
      const int other = 3 - left - me;
      std::unique_ptr<Communicator> pair;
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          pair, rank.Split("pair",
                           {me < other ? me : other, me < other ? other : me}));
      LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
      for (int i = 0; i < 100; ++i) {
        LOCKSTEP_EXPECT_OK(Wait(pair->Barrier()));
        float in = 1, out = 0;
        LOCKSTEP_EXPECT_OK(Wait(
            rank.SendRecv(BufferOf(&in, 1), other, BufferOf(&out, 1), other)));
      }
      LOCKSTEP_EXPECT_OK(rank.Close());
    });
  }
}

TEST(LocalGroup, AskingWhetherItIsDoneNoticesADeadline) {
  LocalGroupOptions options;
  options.size = 2;
  options.deadline = absl::Milliseconds(10);
  const auto ranks = *MakeLocalGroup(options);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, ranks[0]->Barrier());
  while (!work.Done()) std::this_thread::yield();
  EXPECT_THAT(work.status(), Blames(absl::StatusCode::kDeadlineExceeded,
                                    Blame::Cause::kLate, {1}));
}

// A rank that aborts because of what it has got in an operation takes that from
// no other rank.
TEST(LocalGroup, AnOperationThatIsDoneEndsWellOnAllRanks) {
  for (int i = 0; i < 200; ++i) {
    OnAllRanks(Make(2), [](Communicator& rank) {
      LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
      rank.Abort(absl::InternalError("enough"));
    });
  }
}

// The waits of a single rank have no other rank that would watch them.
TEST(LocalGroup, ARankThatWaitsForItselfIsFound) {
  LocalGroupOptions options;
  options.deadline = absl::Milliseconds(10);
  const auto ranks = *MakeLocalGroup(options);
  float value = 0;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work,
                                ranks[0]->Recv(BufferOf(&value, 1), 0));
  EXPECT_THAT(work.Wait(), Blames(absl::StatusCode::kDeadlineExceeded,
                                  Blame::Cause::kLate, {0}));
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

// The buffers of a rank that drops its communicator may be freed with it.
TEST(LocalGroup, TheOperationsOfADroppedRankAreNotDone) {
  auto ranks = Make(2);
  std::vector<float> values(2, 1);
  auto gone = std::make_unique<std::vector<float>>(2, 2);
  const Buffer buffer = BufferOf(*gone);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const Work work, ranks[0]->AllReduce(buffer, buffer, ReduceOp::kSum));
  ranks[0] = nullptr;
  gone = nullptr;
  const Buffer other = BufferOf(absl::MakeSpan(values));
  const std::string operation = "all_reduce(2 x f32, sum) #1 of group 'world'";
  // On the rank itself, the group does not fail in one operation.
  const absl::Status own = work.Wait();
  ASSERT_THAT(own, AllOf(Blames(absl::StatusCode::kUnavailable,
                                Blame::Cause::kLeft, {0}),
                         BlamesIn("", 0)));
  EXPECT_EQ(BlameOf(own)->ranks[0].last, operation);
  EXPECT_THAT(Wait(ranks[1]->AllReduce(other, other, ReduceOp::kSum)),
              Blames(absl::StatusCode::kUnavailable, Blame::Cause::kLeft, {0}));
  EXPECT_EQ(values, std::vector<float>(2, 1));
}

// Returns a matcher of the verdict that these ranks wait for each other.
auto Deadlocks(const std::vector<int>& ranks) {
  return AllOf(Blames(absl::StatusCode::kFailedPrecondition,
                      Blame::Cause::kDiffer, ranks),
               BlamesIn("", 0));
}

// A rank that has issued nothing in the first group is known by its split.
TEST(LocalGroup, ARankThatWaitsInASplitAloneIsFound) {
  OnAllRanks(Make(2), [](Communicator& rank) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto part, rank.Split("part", {0, 1}));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const Work work, rank.rank() == 0 ? rank.Barrier() : part->Barrier());
    EXPECT_THAT(work.Wait(), Deadlocks({0, 1}));
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
