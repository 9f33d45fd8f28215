#include "lockstep/collective/testing/conformance_parts.h"

#include <cstdint>
#include <functional>
#include <string>
#include <thread>  // NOLINT: ranks
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/testing/blame_matchers.h"

namespace lockstep::internal_collective {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Two ranks issue different operations. Errors on both name both, and so do
// those of later calls.
void ExpectMismatch(
    const MakeRanks& make, bool compares, const std::string& first,
    const std::string& second,
    const std::function<absl::StatusOr<Work>(Communicator&, bool)>& issue) {
  const Ranks ranks = make(2);
  OnEachRank(ranks, [&](Communicator& rank) {
    absl::Status status = Wait(issue(rank, rank.rank() == 0));
    while (status.ok() && !compares) status = Wait(rank.Barrier());
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 AllOf(HasSubstr(first), HasSubstr(second))));
    ExpectSame(Wait(rank.Barrier()), status);
  });
}

void ExpectMismatchOfShards(const MakeRanks& make) {
  ExpectMismatch(
      make, /*compares=*/true, "all_reduce_shards(4 x f32, 4+4 shards, sum)",
      "all_reduce_shards(4 x f32, 2+2 shards, sum)",
      [](Communicator& rank, bool first) {
        std::vector<float> memory(4);
        const Buffer buffer = BufferOf(absl::MakeSpan(memory));
        const std::vector<int64_t> deal(2, first ? 4 : 2);
        absl::StatusOr<Work> work = rank.AllReduceShards(buffer, buffer, deal);
        // The memory ends here.
        if (work.ok()) work->Wait().IgnoreError();
        return work;
      });
}

}  // namespace

void ExpectMismatches(const MakeRanks& make, bool compares) {
  std::vector<float> memory[2] = {std::vector<float>(8), std::vector<float>(8)};
  const auto floats = [&](Communicator& rank, int64_t count) {
    return BufferOf(absl::MakeSpan(memory[rank.rank()]).first(count));
  };
  const auto all_reduce = [&](Communicator& rank, int64_t count, ReduceOp op,
                              const CallOptions& options) {
    const Buffer buffer = floats(rank, count);
    return rank.AllReduce(buffer, buffer, op, options);
  };
  ExpectMismatch(make, compares, "all_reduce(4 x f32, sum)", "barrier()",
                 [&](Communicator& rank, bool first) {
                   return first ? all_reduce(rank, 4, ReduceOp::kSum, {})
                                : rank.Barrier();
                 });
  ExpectMismatch(make, compares, "all_reduce(4 x f32, sum)",
                 "all_reduce(5 x f32, sum)",
                 [&](Communicator& rank, bool first) {
                   return all_reduce(rank, first ? 4 : 5, ReduceOp::kSum, {});
                 });
  ExpectMismatch(
      make, compares, "all_reduce(4 x f32, sum)", "all_reduce(4 x f32, max)",
      [&](Communicator& rank, bool first) {
        return all_reduce(rank, 4, first ? ReduceOp::kSum : ReduceOp::kMax, {});
      });
  ExpectMismatch(make, compares, "all_reduce(4 x f32, sum)",
                 "all_reduce(4 x i32, sum)",
                 [&](Communicator& rank, bool first) {
                   Buffer buffer = floats(rank, 4);
                   if (!first) buffer.dtype = DType::kI32;
                   return rank.AllReduce(buffer, buffer, ReduceOp::kSum);
                 });
  ExpectMismatch(
      make, compares, "root 0", "root 1", [&](Communicator& rank, bool first) {
        return rank.Broadcast(floats(rank, 4), floats(rank, 4), first ? 0 : 1);
      });
  ExpectMismatch(make, compares, "name 'a'", "name 'b'",
                 [&](Communicator& rank, bool first) {
                   CallOptions options;
                   options.name = first ? "a" : "b";
                   return all_reduce(rank, 4, ReduceOp::kSum, options);
                 });
  ExpectMismatch(
      make, compares, "sends 3", "takes 4",
      [&](Communicator& rank, bool first) {
        const std::vector<int64_t> gives =
            first ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{2, 2};
        const std::vector<int64_t> takes =
            first ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{4, 2};
        Buffer out = floats(rank, 0);
        static std::vector<float> taken[2] = {std::vector<float>(8),
                                              std::vector<float>(8)};
        out = BufferOf(
            absl::MakeSpan(taken[rank.rank()]).first(takes[0] + takes[1]));
        return rank.AllToAllV(floats(rank, 4), gives, out, takes);
      });
  if (compares) ExpectMismatchOfShards(make);  // others can't add them up
  {  // A send may be done before it is received.
    const Ranks ranks = make(2);
    OnEachRank(ranks, [&](Communicator& rank) {
      const auto differ = StatusIs(
          absl::StatusCode::kFailedPrecondition,
          AllOf(HasSubstr("send(4 x f32)"), HasSubstr("recv(5 x f32)")));
      if (rank.rank() == 0) {
        // If the send meets the other rank's operation, it fails with it.
        const absl::Status sent = rank.Send(floats(rank, 4), 1).status();
        if (!sent.ok()) {
          EXPECT_THAT(sent, differ);
        }
      } else {
        EXPECT_THAT(Wait(rank.Recv(floats(rank, 5), 0)), differ);
      }
      EXPECT_THAT(Wait(rank.Barrier()), differ);
    });
  }
}

namespace {

// Expects that an operation that can't succeed ends at its deadline with a
// status that matches `says`. Until the deadline, the ranks tell each other
// where they are. So the deadline grows until it was long enough for everything
// in the status.
void ExpectExpires(const std::function<absl::Status(absl::Duration)>& run,
                   const testing::Matcher<absl::Status>& says) {
  absl::Duration deadline = absl::Milliseconds(20);
  absl::Status status = run(deadline);
  while (absl::IsDeadlineExceeded(status) && deadline < absl::Seconds(20) &&
         !testing::Value(status, says)) {
    deadline *= 4;
    status = run(deadline);
  }
  EXPECT_THAT(status, says);
}

// Abort ends pending operations on every rank.
void ExpectAbortEndsAll(const MakeRanks& make) {
  const Ranks ranks = make(3);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, ranks[0]->Barrier());
  LOCKSTEP_ASSERT_OK(ranks[1]->Barrier().status());
  ranks[1]->Abort(absl::InternalError("loss is NaN"));
  const absl::Status status = work.Wait();
  EXPECT_THAT(
      status,
      AllOf(StatusIs(absl::StatusCode::kAborted, HasSubstr("loss is NaN")),
            Blames(absl::StatusCode::kAborted, Blame::Cause::kFailed, {1})));
  EXPECT_EQ(BlameOf(status)->code, absl::StatusCode::kInternal);
  EXPECT_THAT(BlameOf(status)->ranks[0].last, HasSubstr("barrier() #1"));
  for (const auto& rank : ranks) {
    absl::Status same = Wait(rank->Barrier());
    // Rank 2 may not have heard of it yet. The others have issued the first
    // barrier, so that one may end well.
    if (same.ok() && rank->rank() == 2) same = Wait(rank->Barrier());
    ExpectSame(same, status);
  }
}

// The first operation that needs a rank that left names it.
void ExpectRankThatLeftIsNamed(const MakeRanks& make) {
  const Ranks ranks = make(3);
  OnEachRank(ranks, [](Communicator& rank) {
    LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
    if (rank.rank() == 2) {
      LOCKSTEP_EXPECT_OK(rank.Close());
      EXPECT_FALSE(rank.Barrier().ok());
      return;
    }
    const absl::Status status = Wait(rank.Barrier());
    EXPECT_THAT(status, Blames(absl::StatusCode::kUnavailable,
                               Blame::Cause::kLeft, {2}));
    EXPECT_THAT(
        status,
        BlamesIn(absl::StrCat("barrier() #2 of group '", rank.name(), "'"), 2));
  });
}

// The error names a rank that does not come, with its last operation.
void ExpectMissingRankIsNamed(const MakeRanks& make) {
  ExpectExpires(
      [&make](absl::Duration deadline) {
        const Ranks ranks = make(3);
        OnEachRank(ranks, [](Communicator& rank) {
          LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
        });
        LOCKSTEP_EXPECT_OK(ranks[2]->Barrier().status());
        CallOptions options;
        options.deadline = deadline;
        absl::Status status = Wait(ranks[0]->Barrier(options));
        EXPECT_EQ(BlameOf(status)->number, 2);
        // Rank 1 may still meet the others' parts before it hears of their
        // failure.
        while (Wait(ranks[1]->Barrier()).ok()) {
        }
        return status;
      },
      AllOf(
          Blames(absl::StatusCode::kDeadlineExceeded, Blame::Cause::kLate, {1}),
          testing::ResultOf(
              [](const absl::Status& status) {
                return BlameOf(status)->ranks[0].last;
              },
              HasSubstr("barrier() #1 of group"))));
}

// The error names the one of two peers that does not come.
void ExpectMissingPeerIsNamed(const MakeRanks& make) {
  ExpectExpires(
      [&make](absl::Duration deadline) {
        const Ranks ranks = make(3);
        std::vector<float> sent(4), got(4), other(4);
        const Buffer to = BufferOf(absl::MakeSpan(sent));
        const Buffer from = BufferOf(absl::MakeSpan(got));
        CallOptions options;
        options.deadline = deadline;
        const absl::StatusOr<Work> received =
            ranks[1]->Recv(BufferOf(absl::MakeSpan(other)), 0);
        LOCKSTEP_EXPECT_OK(received.status());
        absl::Status status = Wait(ranks[0]->SendRecv(to, 1, from, 2, options));
        // The receive may have ended before, or failed, too.
        Wait(received).IgnoreError();
        return status;
      },
      Blames(absl::StatusCode::kDeadlineExceeded, Blame::Cause::kLate, {2}));
}

// A send to the rank itself waits for its receive.
void ExpectMessageToItselfWaits(const MakeRanks& make) {
  const Ranks ranks = make(2);
  std::vector<float> sent = {1, 2}, got(2);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const Work send, ranks[1]->Send(BufferOf(absl::MakeSpan(sent)), 1));
  EXPECT_EQ(send.WaitUntil(absl::Now() + absl::Milliseconds(100)).code(),
            absl::StatusCode::kDeadlineExceeded);
  LOCKSTEP_EXPECT_OK(Wait(ranks[1]->Recv(BufferOf(absl::MakeSpan(got)), 1)));
  LOCKSTEP_EXPECT_OK(send.Wait());
  EXPECT_EQ(got, sent);
}

// A message can be received after its sender has left.
void ExpectMessageOutlivesItsSender(const MakeRanks& make) {
  const Ranks ranks = make(2);
  std::vector<float> sent = {1, 2}, got(2);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const Work send, ranks[0]->Send(BufferOf(absl::MakeSpan(sent)), 1));
  LOCKSTEP_EXPECT_OK(ranks[0]->Close());
  const Buffer to = BufferOf(absl::MakeSpan(got));
  LOCKSTEP_EXPECT_OK(Wait(ranks[1]->Recv(to, 0)));
  LOCKSTEP_EXPECT_OK(send.Wait());
  EXPECT_EQ(got, sent);
  EXPECT_THAT(Wait(ranks[1]->Recv(to, 0)),
              Blames(absl::StatusCode::kUnavailable, Blame::Cause::kLeft, {0}));
}

// An operation does not fail if a rank leaves after its part.
void ExpectLeavingAfterItsPart(const MakeRanks& make) {
  const Ranks ranks = make(3);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work first, ranks[2]->Barrier());
  LOCKSTEP_EXPECT_OK(ranks[2]->Close());
  LOCKSTEP_EXPECT_OK(ranks[0]->Barrier().status());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work second, ranks[0]->Barrier());
  LOCKSTEP_EXPECT_OK(Wait(ranks[1]->Barrier()));
  LOCKSTEP_EXPECT_OK(first.Wait());
  EXPECT_EQ(Wait(ranks[1]->Barrier()).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.Wait(),
              Blames(absl::StatusCode::kUnavailable, Blame::Cause::kLeft, {2}));
  EXPECT_EQ(BlameOf(second.Wait())->number, 2);
}

// A message may go out when its sender has issued a collective that its
// receiver has not issued.
void ExpectMessageOvertakesCollective(const MakeRanks& make) {
  const Ranks ranks = make(2);
  OnEachRank(ranks, [](Communicator& rank) {
    std::vector<float> sent = {1, 2}, got(2);
    const Buffer from = BufferOf(absl::MakeSpan(sent));
    const Buffer to = BufferOf(absl::MakeSpan(got));
    if (rank.rank() == 0) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, rank.Barrier());
      LOCKSTEP_EXPECT_OK(Wait(rank.Send(from, 1)));
      LOCKSTEP_EXPECT_OK(work.Wait());
    } else {
      LOCKSTEP_EXPECT_OK(Wait(rank.Recv(to, 0)));
      LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
      EXPECT_EQ(got, sent);
    }
  });
}

// The time limit of a wait does not end the operation.
void ExpectTimeLimitEndsNothing(const MakeRanks& make) {
  const Ranks ranks = make(2);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, ranks[0]->Barrier());
  EXPECT_THAT(
      work.WaitUntil(absl::Now()),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("it goes on")));
  EXPECT_THAT(work.WaitUntil(absl::InfinitePast()),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(work.Done());
  LOCKSTEP_EXPECT_OK(Wait(ranks[1]->Barrier()));
  LOCKSTEP_EXPECT_OK(work.Wait());
  EXPECT_TRUE(work.Done());
}

}  // namespace

void InThreads(int count, const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&run, i] { run(i); });
  for (std::thread& thread : threads) thread.join();
}

void OnEachRank(const Ranks& ranks,
                const std::function<void(Communicator&)>& run) {
  InThreads(static_cast<int>(ranks.size()),
            [&](int rank) { run(*ranks[rank]); });
}

void ExpectSame(const absl::Status& status, const absl::Status& other) {
  EXPECT_EQ(status.code(), other.code());
  EXPECT_EQ(status.message(), other.message());
  EXPECT_EQ(BlameText(status), BlameText(other));
}

void ExpectFailures(const MakeRanks& make) {
  ExpectAbortEndsAll(make);
  ExpectRankThatLeftIsNamed(make);
  ExpectMissingRankIsNamed(make);
  ExpectMissingPeerIsNamed(make);
  ExpectMessageToItselfWaits(make);
  ExpectMessageOutlivesItsSender(make);
  ExpectLeavingAfterItsPart(make);
  ExpectMessageOvertakesCollective(make);
  ExpectTimeLimitEndsNothing(make);
}

}  // namespace lockstep::internal_collective
