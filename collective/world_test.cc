#include "lockstep/collective/world.h"

#include <functional>
#include <future>  // NOLINT: what a callback is told
#include <memory>
#include <mutex>  // NOLINT: std::call_once
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>  // NOLINT: ranks
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/rendezvous/star_testing.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/testing/any_backend.h"
#include "lockstep/collective/testing/blame_matchers.h"
#include "lockstep/collective/testing/conformance.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void InThreads(int count, const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  for (int i = 0; i < count; ++i) threads.emplace_back([&run, i] { run(i); });
  for (std::thread& thread : threads) thread.join();
}

// A job whose ranks are threads of this process.
// Thread-safety: thread-compatible.
class Job {
 public:
  explicit Job(int size, const WorldOptions& common = {}) : worlds(size) {
    MemoryStore store;
    InThreads(size, [&](int rank) {
      WorldOptions options = common;
      options.rank = rank;
      options.size = size;
      options.store = &store;
      auto world = World::Join(options);
      EXPECT_TRUE(world.ok()) << world.status();
      if (world.ok()) worlds[rank] = *std::move(world);
    });
  }
  ~Job() {
    InThreads(static_cast<int>(worlds.size()),
              [this](int rank) { worlds[rank] = nullptr; });
  }

  std::vector<std::unique_ptr<Communicator>> MakeGroups(
      const GroupOptions& options) {
    std::vector<std::unique_ptr<Communicator>> ranks(worlds.size());
    InThreads(static_cast<int>(worlds.size()), [&](int rank) {
      auto group = MakeGroupForHost(*worlds[rank], options);
      EXPECT_TRUE(group.ok()) << group.status();
      if (group.ok()) ranks[rank] = *std::move(group);
    });
    return ranks;
  }

  std::vector<std::unique_ptr<World>> worlds;
};

class Backends : public testing::TestWithParam<std::string> {};

TEST_P(Backends, Conforms) {
  ConformanceOptions conformance;
  conformance.reduces_all = conformance.compares =
      conformance.reduces_in_rank_order = conformance.adds_shards =
          GetParam() != "nccl";
  std::unique_ptr<Job> job;
  ExpectConforms(
      [&job](int size) {
        job = nullptr;
        job = std::make_unique<Job>(size);
        GroupOptions options;
        options.backend = GetParam();
        options.slow = absl::Milliseconds(50);
        return job->MakeGroups(options);
      },
      conformance);
}

TEST_P(Backends, SeveralGroupsAtOnceAndAgain) {
  Job job(3);
  GroupOptions options;
  options.backend = GetParam();
  for (int i = 0; i < 3; ++i) {
    options.name = "gradients";
    const auto gradients = job.MakeGroups(options);
    options.name = "metrics";
    const auto metrics = job.MakeGroups(options);
    InThreads(3, [&](int rank) {
      LOCKSTEP_EXPECT_OK(Wait(gradients[rank]->Barrier()));
      LOCKSTEP_EXPECT_OK(Wait(metrics[rank]->Barrier()));
    });
  }
}

TEST_P(Backends, OverIpv6) {
  if (!internal_collective::HasIpv6Loopback()) {
    GTEST_SKIP() << "this machine has no ::1";
  }
  WorldOptions world_options;
  world_options.interface = "::1";
  Job job(3, world_options);
  GroupOptions options;
  options.backend = GetParam();
  OnAllRanks(job.MakeGroups(options), [](Communicator& rank) {
    std::vector<float> values(1000, static_cast<float>(rank.rank()));
    const Buffer buffer = BufferOf(absl::MakeSpan(values));
    LOCKSTEP_EXPECT_OK(Wait(rank.AllReduce(buffer, buffer, ReduceOp::kSum)));
    EXPECT_EQ(values, std::vector<float>(1000, 3));
  });
}

INSTANTIATE_TEST_SUITE_P(All, Backends, testing::Values("shm", "tcp", "nccl"),
                         [](const auto& info) { return info.param; });

TEST(World, AloneItNeedsNothing) {
  WorldOptions options;
  options.rank = 0;
  options.size = 1;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto world, World::Join(options));
  EXPECT_EQ(world->rank(), 0);
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(world->local_rank(), 0);
  EXPECT_EQ(world->local_size(), 1);
  EXPECT_EQ(world->AutoBackend(), "shm");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto group, world->MakeGroup());
  LOCKSTEP_EXPECT_OK(Wait(group->Barrier()));
}

TEST(World, RanksOfOneHostShareMemory) {
  Job job(3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(job.worlds[rank]->AutoBackend(), "shm");
    EXPECT_EQ(job.worlds[rank]->local_rank(), rank);
    EXPECT_EQ(job.worlds[rank]->local_size(), 3);
    EXPECT_THAT(job.worlds[rank]->description(),
                HasSubstr(absl::StrCat("rank ", rank, " of 3")));
  }
}

// The ranks of this test have one clock.
TEST(World, KnowsHowFarTheClocksDiffer) {
  WorldOptions options;
  options.beat = absl::Milliseconds(10);
  Job job(2, options);
  EXPECT_EQ(job.worlds[0]->steady_offset()->error, absl::ZeroDuration());
  std::optional<SteadyOffset> offset;
  const SteadyTime end = After(internal_collective::kLong);
  while (!offset.has_value() && SteadyNow() < end) {
    offset = job.worlds[1]->steady_offset();
    std::this_thread::yield();
  }
  ASSERT_TRUE(offset.has_value());
  EXPECT_LE(absl::AbsDuration(offset->ahead), offset->error);
}

TEST(World, RefusesWhatMakesNoSense) {
  WorldOptions options;
  EXPECT_THAT(World::Join(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("rank=-1, size=-1")));
  options.rank = 0;
  options.size = 2;
  EXPECT_THAT(World::Join(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("World::FromEnvironment")));
  options.init = "mpi://";
  EXPECT_THAT(World::Join(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("init='mpi://'")));
  options.init = "env://";
  options.join_deadline = absl::ZeroDuration();
  MemoryStore store;
  options.store = &store;
  EXPECT_THAT(World::Join(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("join_deadline=0")));
  options.join_deadline = absl::Seconds(1);
  options.leave_patience = absl::Seconds(-1);
  EXPECT_THAT(World::Join(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("leave_patience=-1s")));
  options.leave_patience = absl::ZeroDuration();
  options.size = 1;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto world, World::Join(options));
  GroupOptions group;
  group.backend = "mpi";
  EXPECT_THAT(world->MakeGroup(group),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("'mpi'"), HasSubstr("shm, tcp"))));
  group.backend = "shm";
  group.deadline = -absl::Seconds(1);
  EXPECT_THAT(
      world->MakeGroup(group),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deadline=-1s")));
}

// A store whose calls throw.
// Thread-safety: thread-safe.
class ThrowingStore : public Store {
 public:
  absl::Status Set(absl::string_view, absl::string_view) override {
    throw std::runtime_error("the store's host is down");
  }
  absl::StatusOr<std::string> Get(absl::string_view, absl::Time) override {
    throw std::runtime_error("the store's host is down");
  }
};

TEST(World, WhatAStoreThrowsIsAStatus) {
  for (const int rank : {0, 1}) {
    ThrowingStore store;
    WorldOptions options;
    options.rank = rank;
    options.size = 2;
    options.store = &store;
    EXPECT_THAT(World::Join(options),
                StatusIs(absl::StatusCode::kUnknown,
                         HasSubstr("std::runtime_error: the store's host")));
  }
}

// Keeps the first text about a barrier that on_slow gets.
// Thread-safety: thread-safe.
class ToldOfABarrier {
 public:
  std::function<void(absl::string_view)> on_slow() {
    return [this](absl::string_view what) {
      if (!absl::StrContains(what, "barrier()")) return;
      std::call_once(once_, [&] { told_.set_value(std::string(what)); });
    };
  }
  std::string Await() { return told_.get_future().get(); }

 private:
  std::once_flag once_;
  std::promise<std::string> told_;
};

TEST(World, IsToldWhatIsSlowInGroupsWithoutAnOnSlow) {
  ToldOfABarrier by_world, by_group;
  WorldOptions common;
  common.on_slow = by_world.on_slow();
  Job job(2, common);
  GroupOptions options;
  options.slow = absl::Milliseconds(1);
  options.name = "deaf";
  const auto deaf = job.MakeGroups(options);
  options.name = "own";
  options.on_slow = by_group.on_slow();
  const auto own = job.MakeGroups(options);
  InThreads(2, [&](int rank) {
    const std::string own_is_slow = rank == 1 ? by_group.Await() : "'own'";
    EXPECT_THAT(own_is_slow, HasSubstr("'own'"));
    LOCKSTEP_EXPECT_OK(Wait(own[rank]->Barrier()));
    const std::string deaf_is_slow = rank == 1 ? by_world.Await() : "'deaf'";
    EXPECT_THAT(deaf_is_slow, HasSubstr("'deaf'"));
    LOCKSTEP_EXPECT_OK(Wait(deaf[rank]->Barrier()));
  });
}

TEST(World, ANameIsForOneGroupAtATime) {
  Job job(2);
  const auto first = job.MakeGroups({});
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(
        job.worlds[rank]->MakeGroup(),
        StatusIs(absl::StatusCode::kAlreadyExists,
                 AllOf(HasSubstr("'world'"), HasSubstr("GroupOptions::name"))));
  }
  GroupOptions other;
  other.name = "other";
  const auto others = job.MakeGroups(other);
  first[1]->Abort(absl::InternalError("loss is NaN"));
  EXPECT_THAT(Wait(first[0]->Barrier()), StatusIs(absl::StatusCode::kAborted));
  // The failed group may still exist.
  const auto second = job.MakeGroups({});
  for (const auto& rank : second) LOCKSTEP_EXPECT_OK(rank->Close());
  const auto third = job.MakeGroups({});
  InThreads(2, [&](int rank) {
    LOCKSTEP_EXPECT_OK(Wait(third[rank]->Barrier()));
    LOCKSTEP_EXPECT_OK(Wait(others[rank]->Barrier()));
  });
}

// examples/skeletons/backend_test.cc has one that moves bytes.
TEST(World, ATransportOfOnesOwnIsABackend) {
  Job job(2);
  GroupOptions options;
  options.backend = "pigeon";
  options.transport = [](const TransportContext& context)
      -> absl::StatusOr<std::unique_ptr<Transport>> {
    EXPECT_EQ(context.size, 2);
    EXPECT_NE(context.store, nullptr);
    return absl::UnavailableError("there is no pigeon");
  };
  InThreads(2, [&](int rank) {
    const auto group = job.worlds[rank]->MakeGroup(options);
    EXPECT_THAT(group, StatusIs(absl::StatusCode::kUnavailable,
                                HasSubstr("there is no pigeon")));
  });
}

TEST(World, ATransportMayStoreNoMoreThanAnyStoreTakes) {
  Job job(1);
  GroupOptions options;
  options.transport = [](const TransportContext& context)
      -> absl::StatusOr<std::unique_ptr<Transport>> {
    const std::string most(1 << 20, 'x');
    LOCKSTEP_EXPECT_OK(context.store->Set("key", most));
    EXPECT_THAT(context.store->Set("", most),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("has 1 to 512 bytes")));
    EXPECT_THAT(context.store->Get("", absl::Now()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("has 1 to 512 bytes")));
    return context.store->Set("key", std::string(5 << 20, 'x'));
  };
  EXPECT_THAT(job.worlds[0]->MakeGroup(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("that of 'key' has 5242880")));
}

TEST(World, RanksMustAgreeOnTheBackend) {
  Job job(2);
  InThreads(2, [&job](int rank) {
    GroupOptions options;
    options.backend = rank == 0 ? "shm" : "tcp";
    EXPECT_THAT(job.worlds[rank]->MakeGroup(options).status(),
                Blames(absl::StatusCode::kFailedPrecondition,
                       Blame::Cause::kDiffer, {0, 1}));
  });
}

TEST(World, GlooIsAnotherNameOfTcp) {
  Job job(2);
  InThreads(2, [&job](int rank) {
    GroupOptions options;
    options.backend = rank == 0 ? "gloo" : "tcp";
    const auto group = job.worlds[rank]->MakeGroup(options);
    LOCKSTEP_ASSERT_OK(group);
    LOCKSTEP_EXPECT_OK(Wait((*group)->Barrier()));
  });
}

// Rank 1 leaves a group because rank 2 has aborted another one.
TEST(World, ARankThatLeavesForAReasonIsNotBlamed) {
  Job job(3);
  GroupOptions other;
  other.name = "other";
  const auto ranks = job.MakeGroups({}), others = job.MakeGroups(other);
  others[2]->Abort(absl::DataLossError("it is torn"));
  EXPECT_THAT(Wait(others[1]->Barrier()), StatusIs(absl::StatusCode::kAborted));
  LOCKSTEP_EXPECT_OK(ranks[1]->Close());
  const absl::Status status = Wait(ranks[0]->Barrier());
  EXPECT_THAT(status, Blames(absl::StatusCode::kUnavailable,
                             Blame::Cause::kFailed, {2}));
  EXPECT_EQ(BlameOf(status)->code, absl::StatusCode::kDataLoss);
}

// The abort ends a group that exists, one that is being made, and one that is
// made later.
TEST(World, AnAbortEndsTheGroupsOfTheJob) {
  for (const int aborting : {0, 1}) {
    Job job(3);
    const auto ranks = job.MakeGroups({});
    Mutex mutex;
    std::string blame;  // the same on all ranks
    const auto expect = [&](const absl::Status& status) {
      EXPECT_THAT(status, AllOf(StatusIs(absl::StatusCode::kAborted,
                                         HasSubstr("NOT_FOUND: no device 3")),
                                Blames(absl::StatusCode::kAborted,
                                       Blame::Cause::kFailed, {aborting})));
      EXPECT_EQ(BlameOf(status)->code, absl::StatusCode::kNotFound);
      MutexLock lock(mutex);
      if (blame.empty()) blame = internal_collective::BlameText(status);
      EXPECT_EQ(internal_collective::BlameText(status), blame);
    };
    InThreads(3, [&](int rank) {
      GroupOptions options;
      options.name = "other";
      if (rank == aborting) {
        // It may have another failure already, and leaves the job afterwards.
        job.worlds[rank]->Abort(absl::NotFoundError("no device 3"));
        job.worlds[rank]->Abort(absl::NotFoundError("no device 4"));
        expect(job.worlds[rank]->MakeGroup(options).status());
        if (rank != 0) job.worlds[rank] = nullptr;
        return;
      }
      expect(job.worlds[rank]->MakeGroup(options).status());
      expect(Wait(ranks[rank]->Barrier()));
      options.name = "late";
      expect(job.worlds[rank]->MakeGroup(options).status());
    });
  }
}

TEST(World, GroupsEndWithTheirWorld) {
  Job job(2);
  const auto ranks = job.MakeGroups({});
  InThreads(2, [&job](int rank) { job.worlds[rank] = nullptr; });
  for (const auto& rank : ranks) {
    EXPECT_THAT(Wait(rank->Barrier()),
                StatusIs(absl::StatusCode::kUnavailable,
                         testing::ContainsRegex("has closed its world|has left "
                                                "the job")));
  }
}

// It need not wait for a rank that hangs.
TEST(World, Rank0DoesNotStayForARankThatDidNotCome) {
  WorldOptions common;
  common.leave_patience = absl::Hours(1);
  Job job(2, common);
  const auto ranks = job.MakeGroups({});
  CallOptions options;
  options.deadline = absl::Milliseconds(20);
  const absl::Status status = Wait(ranks[0]->Barrier(options));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded));
  job.worlds[0] = nullptr;
}

// Rank 0 leaves while another rank makes a group, or before.
TEST(World, NoGroupIsMadeWithARank0ThatHasLeft) {
  WorldOptions common;
  common.leave_patience = absl::Hours(1);
  Job job(2, common);
  std::thread leaving;
  GroupOptions options;
  // on_slow is called when the group waits for rank 0.
  options.slow = absl::Milliseconds(50);
  options.on_slow = [&](absl::string_view) {
    if (leaving.joinable()) return;
    leaving = std::thread([&job] { job.worlds[0] = nullptr; });
  };
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(
        job.worlds[1]->MakeGroup(options).status(),
        Blames(absl::StatusCode::kUnavailable, Blame::Cause::kLeft, {0}));
  }
  job.worlds[1] = nullptr;
  leaving.join();
}

TEST(World, NamesMayHoldAnything) {
  WorldOptions world_options;
  world_options.rank = 0;
  world_options.size = 1;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto world, World::Join(world_options));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto group, world->MakeGroup());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto abc, group->Split("abc", {0}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto a, group->Split("a", {0}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto ab, a->Split("b", {0}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto other, group->Split("a/b", {0}));
  LOCKSTEP_EXPECT_OK(Wait(other->Barrier()));
  EXPECT_THAT(group->Split(std::string(257, 'x'), {0}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  GroupOptions options;
  options.name = "world/3:abc";
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto like, world->MakeGroup(options));
  LOCKSTEP_EXPECT_OK(Wait(like->Barrier()));
}

// The ranks also agree on the group's generation when it is made again.
TEST(World, WhatOneRankRefusesAllAreTold) {
  Job job(2);
  InThreads(2, [&job](int rank) {
    GroupOptions options;
    if (rank == 1) options.slow = -absl::Seconds(1);
    const absl::Status refused = job.worlds[rank]->MakeGroup(options).status();
    EXPECT_THAT(refused,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(rank == 1 ? "" : "on rank 1: "),
                               HasSubstr("slow=-1s"))));
    EXPECT_THAT(refused, Blames(absl::StatusCode::kInvalidArgument,
                                Blame::Cause::kFailed, {1}));
    options = {};
    if (rank == 1) options.deadline = absl::ZeroDuration();
    EXPECT_THAT(
        job.worlds[rank]->MakeGroup(options),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deadline=0")));
    options = {};
    if (rank == 1) options.backend = "mpi";
    const absl::Status status = job.worlds[rank]->MakeGroup(options).status();
    EXPECT_EQ(status.code(), rank == 1 ? absl::StatusCode::kNotFound
                                       : absl::StatusCode::kFailedPrecondition)
        << status;
  });
  const auto ranks = job.MakeGroups({});
  OnAllRanks(ranks, [](Communicator& rank) {
    LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
  });
}

}  // namespace
}  // namespace lockstep
