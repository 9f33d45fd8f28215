// Tests of the engine over transports whose collectives a device does.
#include <atomic>
#include <cstdint>
#include <functional>
#include <future>  // NOLINT: what on_slow has issued
#include <memory>
#include <optional>
#include <thread>  // NOLINT: to yield
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/notifier.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/engine/group.h"
#include "lockstep/collective/testing/blame_matchers.h"
#include "lockstep/collective/testing/conformance.h"
#include "lockstep/collective/testing/engine_testing.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Returns a matcher of the verdict that these ranks differ.
auto Differ(const std::vector<int>& ranks) {
  return Blames(absl::StatusCode::kFailedPrecondition, Blame::Cause::kDiffer,
                ranks);
}

// Expects that the blame has the hosts and the processes of an EngineJob.
void ExpectProcesses(const Blame& blame) {
  for (const Blame::Rank& rank : blame.ranks) {
    EXPECT_EQ(rank.host, absl::StrCat("host-", rank.rank));
    EXPECT_EQ(rank.pid, 100 + rank.rank);
  }
}

// A device that is done with everything at once, whatever the others do.
// Thread-safety: thread-safe.
class Blind : public DeviceTransport {
 public:
  absl::string_view name() const override { return "blind"; }
  absl::Status CheckSupported(const Operation&) const override { return {}; }
  absl::Status Connect() override { return {}; }
  absl::Status Send(int, const ConstBuffer&, uint64_t) override {
    return Never();
  }
  absl::Status Recv(int, const Buffer&, uint64_t) override { return Never(); }
  void Cancel() override {}
  absl::StatusOr<std::shared_ptr<Launch>> Prepare(
      const std::shared_ptr<const Operation>&) override {
    return std::make_shared<Nothing>();
  }

 private:
  struct Nothing : Launch {
    absl::StatusOr<State> Begin() override { return State::kQueued; }
    absl::StatusOr<State> Look() override { return State::kDone; }
    absl::Status WaitOnStream(Stream) override { return {}; }
  };
  static absl::Status Never() { return absl::InternalError("was called"); }
};

// Operations that nothing else compares are compared at heartbeats. If there
// are many, only some of them are.
TEST(DeviceEngine, RanksOfABlindDeviceLearnThatTheyDiffer) {
  for (const int before : {2, 1000}) {
    EngineJob job(2);
    job.options.make_transport = [](const TransportContext&) {
      return std::make_unique<Blind>();
    };
    const auto ranks = job.JoinAll();
    OnAllRanks(ranks, [before](Communicator& rank) {
      for (int i = 0; i < before; ++i) {
        LOCKSTEP_ASSERT_OK(Wait(rank.Barrier()));
      }
      float value = 1;
      const Buffer buffer = BufferOf(absl::MakeSpan(&value, 1));
      const ReduceOp op = rank.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax;
      Wait(rank.AllReduce(buffer, buffer, op)).IgnoreError();
      absl::Status status;
      while (status.ok()) status = Wait(rank.Barrier());
      EXPECT_THAT(status, Differ({0, 1}));
      EXPECT_THAT(status.message(), HasSubstr("suspect"));
      const Blame blame = BlameOf(status).value_or(Blame());
      EXPECT_GT(blame.number, static_cast<uint64_t>(before));
      ExpectProcesses(blame);
    });
  }
}

// Ranks learn that they differ however far ahead one of them is. Here rank 0
// gives thousands of marks before rank 1 comes to the first difference.
TEST(DeviceEngine, MarksOfARankThatIsFarAheadAreKept) {
  EngineJob job(2);
  job.options.make_transport = [](const TransportContext&) {
    return std::make_unique<Blind>();
  };
  const auto ranks = job.JoinAll();
  const auto send = [&job](int rank, uint64_t first, uint64_t last) {
    std::vector<Mark> marks;
    for (uint64_t number = first; number <= last; ++number) {
      Mark mark;
      mark.number = number;
      mark.digest = number + (rank == 1 && number > 1000 ? 1 : 0);
      marks.push_back(mark);
      if (marks.size() < 40 && number < last) continue;
      job.planes[rank]->SendMarks(job.options.key, marks);
      marks.clear();
    }
  };
  send(0, 1, 20000);
  job.stars.AwaitBeat(0);
  send(1, 1, 2000);
  job.planes[1]->Fail(job.options.key, absl::AbortedError("nothing was found"));
  OnAllRanks(ranks, [](Communicator& rank) {
    absl::Status status;
    while (status.ok()) status = Wait(rank.Barrier());
    EXPECT_THAT(status, Differ({0, 1}));
    EXPECT_GT(BlameOf(status).value_or(Blame()).number, 1000);
  });
}

// A device that ends nothing before it is cancelled.
// Thread-safety: thread-safe.
class Halting : public Blind {
 public:
  absl::StatusOr<std::shared_ptr<Launch>> Prepare(
      const std::shared_ptr<const Operation>&) override {
    return std::make_shared<Halted>(cancelled_);
  }
  void Cancel() override { cancelled_ = true; }

 private:
  struct Halted : Launch {
    explicit Halted(const std::atomic<bool>& cancelled)
        : cancelled(cancelled) {}
    absl::StatusOr<State> Begin() override { return State::kQueued; }
    absl::StatusOr<State> Look() override {
      return cancelled ? State::kDone : State::kQueued;
    }
    absl::Status WaitOnStream(Stream) override { return {}; }

    const std::atomic<bool>& cancelled;
  };

  std::atomic<bool> cancelled_{false};
};

// The ranks learn it from a verdict on a late operation, too, which comes
// before rank 0's heartbeat.
TEST(DeviceEngine, LateRanksOfADeviceLearnThatTheyDiffer) {
  EngineJob job(2);
  job.options.slow = absl::ZeroDuration();
  job.options.make_transport = [](const TransportContext&) {
    return std::make_unique<Halting>();
  };
  std::vector<float> values(2, 1);
  const Buffer mine = BufferOf(absl::MakeSpan(values).first(1));
  const Buffer other = BufferOf(absl::MakeSpan(values).last(1));
  std::promise<Work> issued;
  bool is_issued = false;
  std::unique_ptr<Communicator> rank_0;
  job.options.on_slow =
      std::make_shared<internal_base::Notifier>([&](absl::string_view what) {
        if (!absl::StrContains(what, "all_reduce") || is_issued) return;
        is_issued = true;
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(
            Work work, rank_0->AllReduce(mine, mine, ReduceOp::kSum));
        EXPECT_FALSE(work.Done());  // and so it is late at the next tick
        issued.set_value(std::move(work));
      });
  rank_0 = job.Join(0);
  job.options.on_slow = nullptr;
  const auto rank_1 = job.Join(1);
  for (const absl::Status& status :
       {Wait(rank_1->AllReduce(other, other, ReduceOp::kMax)),
        issued.get_future().get().Wait()}) {
    ASSERT_THAT(status, Differ({0, 1}));
    EXPECT_THAT(status,
                BlamesIn("all_reduce(1 x f32, sum) #1 of group 'world'", 1));
    const Blame blame = *BlameOf(status);
    EXPECT_EQ(blame.ranks[0].last,
              "all_reduce(1 x f32, sum) #1 of group 'world'");
    EXPECT_EQ(blame.ranks[1].last,
              "all_reduce(1 x f32, max) #1 of group 'world'");
    EXPECT_THAT(status.message(), HasSubstr("from #1 on is suspect"));
  }
}

// A device whose library hangs while `hangs` is set.
// Thread-safety: thread-safe.
class Hanging : public Blind {
 public:
  explicit Hanging(std::atomic<bool>& hangs) : hangs_(hangs) {}

  absl::StatusOr<std::shared_ptr<Launch>> Prepare(
      const std::shared_ptr<const Operation>&) override {
    return std::make_shared<Hung>(hangs_);
  }
  void Cancel() override { hangs_ = false; }

 private:
  struct Hung : Launch {
    explicit Hung(const std::atomic<bool>& hangs) : hangs(hangs) {}
    absl::StatusOr<State> Begin() override { return State::kQueued; }
    absl::StatusOr<State> Look() override {
      while (hangs) std::this_thread::yield();
      return State::kDone;
    }
    absl::Status WaitOnStream(Stream) override { return {}; }

    const std::atomic<bool>& hangs;
  };

  std::atomic<bool>& hangs_;
};

// The library does not hold up the star's thread either, by which rank 1 learns
// of the deadline.
TEST(DeviceEngine, ADevicesLibraryThatHangsHoldsUpNoDeadline) {
  std::vector<std::atomic<bool>> hangs(2);
  EngineJob job(2);
  job.options.make_transport = [&hangs](const TransportContext& context) {
    return std::make_unique<Hanging>(hangs[context.rank]);
  };
  const auto ranks = job.JoinAll();
  hangs[0] = true;
  OnAllRanks(ranks, [](Communicator& rank) {
    CallOptions options;
    if (rank.rank() == 0) options.deadline = absl::Milliseconds(200);
    absl::Status status;
    while (status.ok()) status = Wait(rank.Barrier(options));
    EXPECT_THAT(status, AllOf(StatusIs(absl::StatusCode::kDeadlineExceeded),
                              BlamesIn("barrier() #1 of group 'world'", 1)));
  });
  EXPECT_FALSE(hangs[0]);
}

// A device that refuses its first collective, calls `on_move` in each move, and
// receives nothing from other ranks.
// Thread-safety: as transport.h says.
class Choosy : public Blind {
 public:
  explicit Choosy(std::function<void()> on_move)
      : on_move_(std::move(on_move)) {}

  absl::StatusOr<std::shared_ptr<Launch>> Prepare(
      const std::shared_ptr<const Operation>& op) override {
    if (std::exchange(refuses_, false)) return absl::UnimplementedError("not");
    return Blind::Prepare(op);
  }
  absl::Status Move(const ConstBuffer& in, const Buffer& out) override {
    on_move_();
    return Blind::Move(in, out);
  }
  absl::Status Recv(int, const Buffer&, uint64_t) override {
    while (!cancelled_) std::this_thread::yield();
    return absl::CancelledError("");
  }
  void Cancel() override { cancelled_ = true; }

 private:
  const std::function<void()> on_move_;
  bool refuses_ = true;
  std::atomic<bool> cancelled_{false};
};

// A refused collective has no number. Otherwise it would have the number of
// another collective on the other ranks.
TEST(DeviceEngine, ACollectiveThatADeviceRefusesWasNotIssued) {
  EngineJob job(2);
  job.options.make_transport =
      [](const TransportContext& context) -> std::unique_ptr<DeviceTransport> {
    if (context.rank == 0) return std::make_unique<Blind>();
    return std::make_unique<Choosy>([] {});
  };
  const auto ranks = job.JoinAll();
  OnAllRanks(ranks, [](Communicator& rank) {
    if (rank.rank() == 1) {
      EXPECT_THAT(rank.Barrier().status(),
                  StatusIs(absl::StatusCode::kUnimplemented));
    }
    for (int i = 0; i < 3; ++i) LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
    EXPECT_EQ(rank.issued_operations(), 3);
  });
}

TEST(DeviceEngine, AFailureDuringAMoveToItselfEndsAllPartsOfIt) {
  std::vector<std::unique_ptr<Communicator>> ranks;
  const auto abort = [&ranks] { ranks[0]->Abort(absl::InternalError("why")); };
  EngineJob job(2);
  job.options.make_transport = [&abort](const TransportContext&) {
    return std::make_unique<Choosy>(abort);
  };
  ranks = job.JoinAll();
  float in = 1, out = 0, other = 0;
  const Buffer from = BufferOf(absl::MakeSpan(&in, 1));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const Work received,
      ranks[0]->Recv(BufferOf(absl::MakeSpan(&out, 1)), 0));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const Work both,
      ranks[0]->SendRecv(from, 0, BufferOf(absl::MakeSpan(&other, 1)), 1));
  EXPECT_THAT(both.Wait(), StatusIs(absl::StatusCode::kAborted));
  LOCKSTEP_EXPECT_OK(received.Wait());
  EXPECT_EQ(out, 1);
}

}  // namespace
}  // namespace lockstep::internal_collective
