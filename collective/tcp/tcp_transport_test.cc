#include "lockstep/collective/tcp/tcp_transport.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>  // NOLINT: ranks are threads here
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/held.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/testing/port_scanner.h"
#include "lockstep/collective/testing/transport_testing.h"

namespace lockstep::internal_collective {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kCancelled = absl::StatusCode::kCancelled;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;
constexpr auto kInvalidArgument = absl::StatusCode::kInvalidArgument;
constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

// The transports of a group.
// Thread-safety: thread-compatible.
class TcpRanks : public Ranks {
 public:
  explicit TcpRanks(int size) : Ranks(size, MakeTcpTransport) {}
};

ConstBuffer Reading(const Bytes& bytes) {
  return {bytes.data(), static_cast<int64_t>(bytes.size()), DType::kU8};
}
Buffer Writing(Bytes& bytes) {
  return {bytes.data(), static_cast<int64_t>(bytes.size()), DType::kU8, {}};
}

// After this time, a call is most likely asleep. What is tested also holds if
// it is not.
void LetItWait() { absl::SleepFor(absl::Milliseconds(5)); }

// ---- What collectives return.

class TcpTransportOfSize : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Sizes, TcpTransportOfSize,
                         testing::Values(1, 2, 3, 5));

TEST_P(TcpTransportOfSize, DoesEveryKindWithAnyCount) {
  TcpRanks ranks(GetParam());
  Job job;
  for (const OpKind kind : kWithShards) {
    job.kind = kind;
    // Counts around the limit of small operations for some number of ranks, and
    // around the size of a piece.
    for (const int64_t count : {0, 1, 7, 1000, 3276, 3277, 5461, 5462, 8192,
                                8193, 65536, 65537, 100003}) {
      job.count = count;
      job.root = static_cast<int>(job.number) % ranks.size();
      job.uneven = job.number % 2 == 0;
      job.in_place = job.number % 3 == 0;
      ++job.number;
      RunAndCheck(ranks, job);
    }
  }
}

TEST_P(TcpTransportOfSize, DoesWhatNeedsManyPieces) {
  TcpRanks ranks(GetParam());
  Job job;
  job.count = (20 << 20) / 4 + 1;
  for (const OpKind kind :
       {OpKind::kAllReduce, OpKind::kReduce, OpKind::kBroadcast}) {
    job.kind = kind;
    job.in_place = !job.in_place;
    job.root = static_cast<int>(job.number) % ranks.size();
    ++job.number;
    RunAndCheck(ranks, job);
  }
  job.count /= 2 * ranks.size();
  for (const OpKind kind : {OpKind::kReduceScatter, OpKind::kAllGather,
                            OpKind::kScatter, OpKind::kAllToAll}) {
    job.kind = kind;
    job.in_place = !job.in_place;
    ++job.number;
    RunAndCheck(ranks, job);
  }
}

TEST(TcpTransport, TakesEveryTypeAndReduction) {
  TcpRanks ranks(3);
  Job job;
  for (const DType dtype : kAllDTypes) {
    job.dtype = dtype;
    for (const ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax,
          ReduceOp::kProd, ReduceOp::kBitAnd, ReduceOp::kBitOr}) {
      job.op = op;
      job.scale = IsFloatingPoint(dtype) ? 0.3 : 1;
      if (!CheckReduction(dtype, op, job.scale).ok()) continue;
      for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduceScatter}) {
        job.kind = kind;
        for (const int64_t count : {3, 9999}) {
          job.count = count;
          ++job.number;
          RunAndCheck(ranks, job);
        }
      }
    }
  }
}

// Compares with numbers that are written here.
TEST(TcpTransport, SumsAndMoves) {
  TcpRanks ranks(3);
  ranks.ForEach([&](int rank) {
    Operation op;
    op.kind = OpKind::kAllReduce;
    op.dtype = DType::kI32;
    std::vector<int32_t> values = {1 + rank, 10 * rank};
    op.in = ConstBufferOf(absl::MakeConstSpan(values));
    op.out = BufferOf(absl::MakeSpan(values));
    LOCKSTEP_EXPECT_OK(ranks[rank].Run(op, 1));
    EXPECT_THAT(values, ElementsAre(6, 30));

    op.kind = OpKind::kAllToAll;
    const std::vector<int32_t> in = {rank * 10, rank * 10 + 1, rank * 10 + 2};
    std::vector<int32_t> out(3);
    op.in = ConstBufferOf(absl::MakeConstSpan(in));
    op.out = BufferOf(absl::MakeSpan(out));
    op.send_counts = op.recv_counts = {1, 1, 1};
    LOCKSTEP_EXPECT_OK(ranks[rank].Run(op, 2));
    EXPECT_THAT(out, ElementsAre(rank, 10 + rank, 20 + rank));
  });
}

TEST_P(TcpTransportOfSize, RunsAnySequencePostedOrNot) {
  TcpRanks ranks(GetParam());
  ranks.ForEach([&](int rank) {
    std::minstd_rand random(42);  // the same on all ranks
    std::minstd_rand own(1000 + rank);
    for (uint64_t number = 1; number <= 300; ++number) {
      Job job;
      job.number = number;
      job.kind = kWithShards[random() % std::size(kWithShards)];
      job.dtype = kAllDTypes[random() % std::size(kAllDTypes)];
      job.op = Reduces(job.kind) ? ReduceOp::kMax : ReduceOp::kSum;
      job.root = static_cast<int>(random() % ranks.size());
      job.uneven = random() % 2 == 0;
      job.in_place = random() % 2 == 0;
      job.count = random() % (random() % 16 == 0 ? 100000 : 100);
      Part part(job, rank, ranks.size());
      if (own() % 2 == 0) part.Post(ranks[rank]);
      ASSERT_NO_FATAL_FAILURE(part.RunAndCheck(ranks[rank]));
    }
  });
}

TEST(TcpTransport, PostsWhatIsSmall) {
  TcpRanks ranks(2);
  Job job;
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kBarrier}) {
    job.kind = kind;
    job.count = kind == OpKind::kBarrier ? 0 : 1000;
    ++job.number;
    Part first(job, 0, 2);
    ASSERT_TRUE(first.Post(ranks[0]));
    // The other rank needs nothing more from it.
    Part(job, 1, 2).RunAndCheck(ranks[1]);
    first.RunAndCheck(ranks[0]);
  }
  job.kind = OpKind::kAllReduce;
  job.count = 1 << 20;
  EXPECT_FALSE(Part(job, 0, 2).Post(ranks[0]));
  // A collective that was posted need not be run.
  job.count = 1000;
  EXPECT_TRUE(Part(job, 0, 2).Post(ranks[0]));
  ranks[0].Cancel();
  EXPECT_FALSE(Part(job, 0, 2).Post(ranks[0]));
}

// The other rank reads nothing, so the connection is full after some posts.
TEST(TcpTransport, PostsOnlyWhatTheConnectionTakes) {
  TcpRanks ranks(2);
  Job job;
  job.kind = OpKind::kAllReduce;
  job.count = 16000;
  Part part(job, 0, 2);
  int posts = 0;
  while (posts < 1000 && part.Post(ranks[0])) ++posts;
  EXPECT_LT(posts, 1000);
}

// Returns the bytes that the connections of this process have sent. Those that
// the system has sent once more do not count.
int64_t BytesSent() {
  int64_t sum = 0;
  for (int socket = 0; socket < 1000; ++socket) {
    tcp_info info = {};
    socklen_t size = sizeof(info);
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
      sum +=
          static_cast<int64_t>(info.tcpi_bytes_sent - info.tcpi_bytes_retrans);
    }
  }
  return sum;
}

// An all-reduce of n bytes takes 2 (size - 1) / size * n from each rank.
TEST(TcpTransport, SendsNoMoreThanItMust) {
  for (const int size : {2, 3, 4}) {
    TcpRanks ranks(size);
    Job job;
    job.kind = OpKind::kAllReduce;
    job.count = 1 << 20;
    const int64_t before = BytesSent();
    RunAndCheck(ranks, job);
    const int64_t least = 2 * (size - 1) * job.count * 4;
    EXPECT_GE(BytesSent() - before, least);
    EXPECT_LE(BytesSent() - before, least + least / 1000);
  }
}

TEST(TcpTransport, ABarrierWaitsForAll) {
  TcpRanks ranks(5);
  for (int last = 0; last < 5; ++last) {
    std::atomic<bool> came{false};
    ranks.ForEach([&](int rank) {
      if (rank == last) {
        LetItWait();
        came = true;
      }
      Operation op;
      LOCKSTEP_EXPECT_OK(ranks[rank].Run(op, last));
      EXPECT_TRUE(came);
    });
  }
}

// Data that is still on its way is not lost.
TEST(TcpTransport, DestroyingTheSenderLosesNoSentData) {
  for (int i = 0; i < 5; ++i) {
    TcpRanks ranks(2);
    const Bytes in = Random(DType::kU8, 8 << 20, i);
    std::thread sender([&] {
      LOCKSTEP_EXPECT_OK(ranks[0].Send(1, Reading(in), 1));
      ranks.Drop(0);
    });
    Bytes out(in.size());
    LOCKSTEP_EXPECT_OK(ranks[1].Recv(0, Writing(out), 1));
    EXPECT_TRUE(in == out);
    sender.join();
  }
}

// ---- Ranks that do not do the same.

// Runs on all ranks until one of them finds that they differ. As the engine
// does, cancels all then. Returns what they have returned.
std::vector<absl::Status> RunUntilOneFinds(
    TcpRanks& ranks, const std::function<absl::Status(int)>& run) {
  std::vector<absl::Status> statuses(ranks.size());
  ranks.ForEach([&](int rank) {
    statuses[rank] = run(rank);
    if (statuses[rank].code() != kFailedPrecondition) return;
    EXPECT_THAT(statuses[rank].message(), HasSubstr("rank "));
    for (int other = 0; other < ranks.size(); ++other) ranks[other].Cancel();
  });
  return statuses;
}

TEST(TcpTransport, OtherOperationsMoveNothing) {
  for (const int64_t count : {10, 100000}) {
    TcpRanks ranks(3);
    EXPECT_THAT(
        RunUntilOneFinds(ranks,
                         [&](int rank) {
                           Job job;
                           job.kind = OpKind::kAllReduce;
                           job.count = count;
                           job.number = rank == 2 ? 2 : 1;
                           Part part(job, rank, 3);
                           absl::Status status = part.Run(ranks[rank]);
                           EXPECT_TRUE(part.Result() ==
                                       Bytes(part.expected().size(), 'x'));
                           return status;
                         }),
        Each(AnyOf(StatusIs(kFailedPrecondition), StatusIs(kCancelled))));
  }
}

TEST(TcpTransport, OtherSizesMoveNothing) {
  TcpRanks ranks(2);
  Bytes out(10, 'x');
  std::thread receiver([&] {
    EXPECT_THAT(ranks[1].Recv(0, Writing(out), 1),
                StatusIs(kFailedPrecondition, HasSubstr("rank 0 sends")));
  });
  // It is gone when the connection has it.
  LOCKSTEP_EXPECT_OK(ranks[0].Send(1, Reading(Bytes(11, 'y')), 1));
  receiver.join();
  EXPECT_THAT(out, Each('x'));
}

TEST(TcpTransport, ContradictingCountsDoNotMeet) {
  TcpRanks ranks(3);
  Bytes outs[3];
  const auto found = AnyOf(StatusIs(kFailedPrecondition), StatusIs(kCancelled));
  EXPECT_THAT(RunUntilOneFinds(ranks,
                               [&](int rank) {
                                 Operation op;
                                 op.kind = OpKind::kAllToAll;
                                 op.dtype = DType::kU8;
                                 op.send_counts = {2, 2, 2};
                                 op.recv_counts = {2, 2, 2};
                                 if (rank == 1) op.send_counts[2] = 1;
                                 const Bytes in(rank == 1 ? 5 : 6, 'y');
                                 outs[rank].assign(6, 'x');
                                 op.in = Reading(in);
                                 op.out = Writing(outs[rank]);
                                 return ranks[rank].Run(op, 1);
                               }),
              ElementsAre(AnyOf(IsOk(), StatusIs(kCancelled)), found, found));
  EXPECT_EQ(outs[2][2], 'x');
  EXPECT_EQ(outs[2][3], 'x');
}

// Both ranks see it, since each has sent its frame before it looks at that of
// the other one.
TEST(TcpTransport, BothSeeThatTheirCountsContradict) {
  TcpRanks ranks(2);
  ranks.ForEach([&](int rank) {
    Operation op;
    op.kind = OpKind::kAllToAll;
    op.dtype = DType::kU8;
    op.send_counts = op.recv_counts = {0, 0};
    if (rank == 0) op.send_counts[1] = 3;
    const Bytes in(rank == 0 ? 3 : 0, 'y');
    op.in = Reading(in);
    EXPECT_THAT(ranks[rank].Run(op, 1), StatusIs(kFailedPrecondition));
    // Nothing is done after that.
    op.kind = OpKind::kBarrier;
    EXPECT_FALSE(ranks[rank].Post(op, 2));
    EXPECT_THAT(ranks[rank].Run(op, 2), StatusIs(kFailedPrecondition));
  });
}

// A rank that only sends learns that the others do something else.
TEST(TcpTransport, ARootFindsThatTheOthersDiffer) {
  for (const OpKind kind : {OpKind::kBroadcast, OpKind::kScatter}) {
    for (const int64_t count : {10, 1000000}) {
      TcpRanks ranks(3);
      const std::vector<absl::Status> statuses =
          RunUntilOneFinds(ranks, [&](int rank) {
            Job job;
            job.kind = kind;
            job.count = count;
            job.number = rank == 0 ? 1 : 2;
            Part part(job, rank, 3);
            return part.Run(ranks[rank]);
          });
      EXPECT_THAT(statuses, Each(AnyOf(StatusIs(kFailedPrecondition),
                                       StatusIs(kCancelled))));
    }
  }
}

// ---- Messages.

TEST(TcpTransport, SendsOfAnySizeBothWaysBesideCollectives) {
  TcpRanks ranks(3);
  const std::vector<int64_t> counts = {0, 1, 15, 4096, 65537, 1000003};
  ranks.ForEach([&](int rank) {
    std::vector<std::thread> lanes;
    for (int other = 0; other < 3; ++other) {
      if (other == rank) continue;
      lanes.emplace_back([&, other] {
        for (size_t i = 0; i < counts.size(); ++i) {
          const Bytes in = Random(DType::kU8, counts[i], i * 10 + rank);
          LOCKSTEP_EXPECT_OK(ranks[rank].Send(other, Reading(in), i));
        }
      });
      lanes.emplace_back([&, other] {
        for (size_t i = 0; i < counts.size(); ++i) {
          Bytes out(counts[i]);
          LOCKSTEP_EXPECT_OK(ranks[rank].Recv(other, Writing(out), i));
          EXPECT_TRUE(out == Random(DType::kU8, counts[i], i * 10 + other))
              << "message " << i << " from " << other << " to " << rank;
        }
      });
    }
    Job job;
    job.kind = OpKind::kAllReduce;
    for (job.number = 1; job.number <= 50; ++job.number) {
      job.count = 100 * job.number * job.number;
      Part(job, rank, 3).RunAndCheck(ranks[rank]);
    }
    for (std::thread& lane : lanes) lane.join();
  });
}

TEST(TcpTransport, MessagesWithOneTagKeepTheirOrder) {
  TcpRanks ranks(2);
  std::thread sender([&] {
    for (char i = 0; i < 100; ++i) {
      const Bytes in(1000, i);
      LOCKSTEP_EXPECT_OK(ranks[0].Send(1, Reading(in), 7));
    }
  });
  for (char i = 0; i < 100; ++i) {
    Bytes out(1000);
    LOCKSTEP_EXPECT_OK(ranks[1].Recv(0, Writing(out), 7));
    EXPECT_THAT(out, Each(i));
  }
  sender.join();
}

TEST(TcpTransport, AnotherTagMovesNothing) {
  TcpRanks ranks(2);
  Bytes out(10, 'x');
  LOCKSTEP_EXPECT_OK(ranks[0].Send(1, Reading(Bytes(10, 'y')), 77));
  for (const uint64_t tag : {78, 77}) {
    EXPECT_THAT(ranks[1].Recv(0, Writing(out), tag),
                StatusIs(kFailedPrecondition, HasSubstr("rank 0 sends")));
  }
  EXPECT_THAT(out, Each('x'));
}

// Also those without elements.
TEST(TcpTransport, AMessageOfNothingIsAMessage) {
  TcpRanks ranks(2);
  Bytes nothing, out(10, 'x');
  LOCKSTEP_EXPECT_OK(ranks[0].Send(1, Reading(nothing), 1));
  LOCKSTEP_EXPECT_OK(ranks[0].Send(1, Reading(nothing), 2));
  LOCKSTEP_EXPECT_OK(ranks[1].Recv(0, Writing(nothing), 1));
  EXPECT_THAT(ranks[1].Recv(0, Writing(out), 3), StatusIs(kFailedPrecondition));
}

// ---- Cancel.

TEST(TcpTransport, CancelEndsConnectThatWaitsForAnAddress) {
  MemoryStore store;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeTcpTransport(ContextOf(0, 2, store)));
  std::thread connecting(
      [&] { EXPECT_THAT(transport->Connect(), StatusIs(kCancelled)); });
  LetItWait();
  transport->Cancel();
  connecting.join();
  EXPECT_THAT(transport->Connect(), StatusIs(kCancelled));
}

// A store that tells its rank nothing about the others.
// Thread-safety: thread-safe.
class DeafStore : public Store {
 public:
  explicit DeafStore(Store& store) : store_(store) {}
  absl::Status Set(absl::string_view key, absl::string_view value) override {
    return store_.Set(key, value);
  }
  absl::StatusOr<std::string> Get(absl::string_view /*key*/,
                                  absl::Time /*until*/) override {
    absl::SleepFor(absl::Milliseconds(1));
    return absl::DeadlineExceededError("nothing there");
  }

 private:
  Store& store_;
};

TEST(TcpTransport, CancelEndsConnectThatWaitsForTheOther) {
  for (int i = 0; i < 10; ++i) {
    MemoryStore store;
    DeafStore deaf(store);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto first,
                                  MakeTcpTransport(ContextOf(0, 2, store)));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto second,
                                  MakeTcpTransport(ContextOf(1, 2, deaf)));
    std::thread connects[] = {
        std::thread([&] {
          EXPECT_THAT(first->Connect(), AnyOf(StatusIs(kCancelled), IsOk()));
        }),
        std::thread(
            [&] { EXPECT_THAT(second->Connect(), StatusIs(kCancelled)); })};
    if (i % 2 == 0) LetItWait();
    first->Cancel();
    second->Cancel();
    for (std::thread& connect : connects) connect.join();
  }
}

TEST(TcpTransport, CancelEndsWhatRunsAndWhatComes) {
  TcpRanks ranks(2);
  Job job;
  job.kind = OpKind::kAllReduce;
  job.count = 1000;
  const Bytes much(64 << 20);
  Bytes little(10);
  const auto run = [&] {
    EXPECT_THAT(Part(job, 0, 2).Run(ranks[0]), StatusIs(kCancelled));
  };
  const auto send = [&] {
    EXPECT_THAT(ranks[0].Send(1, Reading(much), 1), StatusIs(kCancelled));
  };
  const auto receive = [&] {
    EXPECT_THAT(ranks[0].Recv(1, Writing(little), 1), StatusIs(kCancelled));
  };
  std::thread threads[] = {std::thread(run), std::thread(send),
                           std::thread(receive)};
  LetItWait();
  ranks[0].Cancel();
  for (std::thread& thread : threads) thread.join();
  ranks[0].Cancel();
  run();
  send();
  receive();
}

// The memory does not belong to the transport any more.
TEST(TcpTransport, MemoryIsNotWrittenAfterCancel) {
  for (const int64_t count : {int64_t{100}, int64_t{8} << 20}) {
    Bytes out(count, 'x');
    TcpRanks ranks(2);
    std::thread receiver([&] {
      EXPECT_THAT(ranks[1].Recv(0, Writing(out), 1), StatusIs(kCancelled));
    });
    LetItWait();
    ranks[1].Cancel();
    receiver.join();
    const Bytes in(count, 'y');
    std::thread sender([&] {
      // A small message is gone when it is written to the connection.
      EXPECT_THAT(ranks[0].Send(1, Reading(in), 1),
                  AnyOf(IsOk(), StatusIs(kCancelled)));
    });
    LetItWait();
    ranks[0].Cancel();
    sender.join();
    EXPECT_TRUE(out == Bytes(count, 'x'));
  }
}

// Cancels in the middle of a message.
TEST(TcpTransport, MemoryIsNotWrittenAfterCancelOfWhatHasBegun) {
  constexpr int64_t kBytes = 16 << 20;
  const Bytes in(kBytes, 'y');
  Bytes out(kBytes, 'x');
  TcpRanks ranks(2);
  std::thread sender([&] {
    EXPECT_THAT(ranks[0].Send(1, Reading(in), 1),
                AnyOf(IsOk(), StatusIs(kCancelled)));
  });
  std::thread receiver([&] {
    EXPECT_THAT(ranks[1].Recv(0, Writing(out), 1),
                AnyOf(IsOk(), StatusIs(kCancelled)));
    std::fill(out.begin(), out.end(), 'z');
  });
  LetItWait();
  ranks[1].Cancel();
  receiver.join();
  LetItWait();
  ranks[0].Cancel();
  sender.join();
  EXPECT_TRUE(out == Bytes(kBytes, 'z'));
}

// ---- Ranks that go.

TEST(TcpTransport, ARankThatGoesEndsWhatNeedsIt) {
  for (const int64_t count : {1000, 1000000}) {
    TcpRanks ranks(3);
    Job job;
    job.kind = OpKind::kAllReduce;
    job.count = count;
    std::thread first([&] {
      EXPECT_THAT(Part(job, 0, 3).Run(ranks[0]),
                  AnyOf(StatusIs(kUnavailable, HasSubstr("rank")),
                        StatusIs(kCancelled)));
    });
    std::thread second([&] {
      EXPECT_THAT(Part(job, 1, 3).Run(ranks[1]),
                  StatusIs(kUnavailable, HasSubstr("rank 2")));
    });
    LetItWait();
    ranks.Drop(2);
    // Rank 1 begins with rank 2, and so it hears of the end whatever rank 0
    // does. Rank 0 begins with rank 1, which may be gone before rank 0 comes.
    second.join();
    ranks[0].Cancel();
    first.join();
  }
}

// The other ranks may be anywhere then. They wait for that rank until they are
// told.
TEST(TcpTransport, ARankMayGoWhileAllConnect) {
  constexpr int kSize = 5;
  for (int i = 0; i < 20; ++i) {
    MemoryStore store;
    std::vector<std::unique_ptr<Transport>> ranks;
    for (int rank = 0; rank < kSize; ++rank) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          auto transport, MakeTcpTransport(ContextOf(rank, kSize, store)));
      ranks.push_back(std::move(transport));
    }
    const auto connect = [&ranks](int rank) {
      EXPECT_THAT(ranks[rank]->Connect(),
                  AnyOf(IsOk(), StatusIs(kCancelled), StatusIs(kUnavailable)));
    };
    std::vector<std::thread> others;
    for (int rank = 1; rank < kSize; ++rank) others.emplace_back(connect, rank);
    std::thread first(connect, 0);
    if (i % 2 == 0) LetItWait();
    ranks[0]->Cancel();
    first.join();
    ranks[0].reset();
    for (int rank = 1; rank < kSize; ++rank) ranks[rank]->Cancel();
    for (std::thread& other : others) other.join();
  }
}

TEST(TcpTransport, ADestroyedRankLeavesOthersWhole) {
  TcpRanks ranks(3);
  ranks.Drop(2);
  std::thread sender([&] {
    LOCKSTEP_EXPECT_OK(ranks[0].Send(1, Reading(Bytes(1000, 'y')), 1));
  });
  Bytes out(1000);
  LOCKSTEP_EXPECT_OK(ranks[1].Recv(0, Writing(out), 1));
  sender.join();
  EXPECT_THAT(out, Each('y'));
}

// ---- Strangers.

TEST(TcpTransport, StrangersGetNothingOfAGroupThatIsConnected) {
  TcpRanks ranks(2);
  std::vector<int> strangers;
  const int before = HeldNow().files;
  for (const sockaddr_storage& address : ListeningAddresses()) {
    for (int i = 0; i < 5; ++i) {
      strangers.push_back(ConnectTo(address));
      ASSERT_GE(strangers.back(), 0);
    }
  }
  Job job;
  for (int i = 0; i < 20; ++i) RunAndCheck(ranks, job);
  EXPECT_EQ(HeldNow().files - before, static_cast<int>(strangers.size()));
  for (const int stranger : strangers) close(stranger);
}

// Strangers come while a group is made. They reset their connections, end them
// or ask for a page, and the group does not even notice.
TEST(TcpTransport, StrangersAtItsPortsDisturbNothing) {
  constexpr int kSize = 3;
  const PortScanner scanner;
  for (int groups = 0; groups < 10 || scanner.count() < 30; ++groups) {
    MemoryStore store;
    std::vector<std::unique_ptr<Transport>> ranks;
    for (int rank = 0; rank < kSize; ++rank) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          auto transport, MakeTcpTransport(ContextOf(rank, kSize, store)));
      ranks.push_back(std::move(transport));
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kSize; ++rank) {
      threads.emplace_back(
          [&, rank] { LOCKSTEP_EXPECT_OK(ranks[rank]->Connect()); });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// They neither keep ranks out nor stay connected.
TEST(TcpTransport, StrangersWhoSayNothingOrSomethingWrongAreDropped) {
  MemoryStore store;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto first,
                                MakeTcpTransport(ContextOf(0, 2, store)));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto second,
                                MakeTcpTransport(ContextOf(1, 2, store)));
  std::thread listening([&] { LOCKSTEP_EXPECT_OK(first->Connect()); });
  LOCKSTEP_ASSERT_OK(store.Get("group/tcp/0", absl::InfiniteFuture()));
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.emplace_back(ConnectTo(ListeningAddresses().front()));
    ASSERT_TRUE(strangers.back().ok());
    // Nothing, too little, or what rank 1 sends but with another secret.
    std::string bytes = std::string(32, 'x') + '\1' + std::string(7, '\0');
    bytes.resize(i % 3 * 20);
    EXPECT_EQ(send(strangers.back().fd(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }
  std::thread connecting([&] { LOCKSTEP_EXPECT_OK(second->Connect()); });
  listening.join();
  connecting.join();
  for (const Descriptor& stranger : strangers) {
    char byte;
    EXPECT_LE(recv(stranger.fd(), &byte, 1, 0), 0);
  }
}

// ---- Processes.

std::string NewFolder() {
  std::string folder =
      absl::StrCat(testing::TempDir(), "/tcp_transport_XXXXXX");
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  return folder;
}

// Runs rank 1 of 2 in a process of its own, and returns the id of that process.
// Its exit code is what `run` returns.
pid_t ForkRankOne(const std::string& folder,
                  const std::function<bool(Transport&)>& run) {
  const pid_t child = fork();
  if (child != 0) return child;
  FileStore store(folder);
  auto transport = MakeTcpTransport(ContextOf(1, 2, store));
  _exit(transport.ok() && (*transport)->Connect().ok() && run(**transport) ? 0
                                                                           : 1);
}

int WaitFor(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(TcpTransport, JoinsProcesses) {
  std::vector<Job> jobs;
  Job job;
  for (const OpKind kind : kWithShards) {
    for (const int64_t count : {0, 1, 1000, 300000}) {
      job.kind = kind;
      job.count = count;
      ++job.number;
      jobs.push_back(job);
    }
  }
  const std::string folder = NewFolder();
  const pid_t child = ForkRankOne(folder, [&jobs](Transport& transport) {
    for (const Job& job : jobs) {
      Part part(job, 1, 2);
      if (!part.Run(transport).ok() || part.Result() != part.expected()) {
        return false;
      }
    }
    return true;
  });
  FileStore store(folder);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeTcpTransport(ContextOf(0, 2, store)));
  LOCKSTEP_ASSERT_OK(transport->Connect());
  for (const Job& job : jobs) Part(job, 0, 2).RunAndCheck(*transport);
  EXPECT_EQ(WaitFor(child), 0);
}

// The signal for a write to the dead process does not end this one, either.
TEST(TcpTransport, AKilledProcessEndsWhatNeedsIt) {
  const std::string folder = NewFolder();
  const pid_t child = ForkRankOne(folder, [](Transport&) {
    for (;;) pause();
    return false;
  });
  FileStore store(folder);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeTcpTransport(ContextOf(0, 2, store)));
  LOCKSTEP_ASSERT_OK(transport->Connect());
  Job job;
  job.kind = OpKind::kAllReduce;
  job.count = 1 << 20;
  std::thread run([&] {
    EXPECT_THAT(Part(job, 0, 2).Run(*transport),
                StatusIs(kUnavailable, HasSubstr("rank 1")));
  });
  LetItWait();
  kill(child, SIGKILL);
  WaitFor(child);
  run.join();
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(Part(job, 0, 2).Run(*transport), StatusIs(kUnavailable));
  }
}

// ---- What is left behind, and refused.

TEST(TcpTransport, LeavesNothingBehind) {
  { TcpRanks ranks(2); }
  const Held before = HeldNow();
  MemoryStore store;
  for (int i = 0; i < 100; ++i) {
    LOCKSTEP_ASSERT_OK(MakeTcpTransport(ContextOf(0, 2, store)));
  }
  for (int i = 0; i < 10; ++i) {
    TcpRanks ranks(2);
    Job job;
    RunAndCheck(ranks, job);
  }
  EXPECT_EQ(WhatGrew(GrowthSince(before), 0), "");
}

TEST(TcpTransport, RefusesWhatItCannotDo) {
  MemoryStore store;
  EXPECT_THAT(MakeTcpTransport(ContextOf(2, 2, store)),
              StatusIs(kInvalidArgument, HasSubstr("rank=2")));
  TransportContext elsewhere = ContextOf(0, 2, store);
  elsewhere.address = "192.0.2.1";  // no host has it
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto lost, MakeTcpTransport(elsewhere));
  EXPECT_THAT(lost->Connect(),
              StatusIs(kInvalidArgument, HasSubstr("'192.0.2.1'")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeTcpTransport(ContextOf(0, 1, store)));
  EXPECT_EQ(transport->name(), "tcp");
  Operation op;
  LOCKSTEP_EXPECT_OK(transport->CheckSupported(op));
  op.in.device.kind = Device::Kind::kCuda;
  EXPECT_THAT(transport->CheckSupported(op),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("CUDA")));
}

TEST(TcpTransport, ConnectNamesTheRankThatCannotBeReached) {
  const std::string secret(32, '0');
  // The port of a socket that does not listen.
  const Descriptor silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(silent.fd(), any, size), 0);
  ASSERT_EQ(getsockname(silent.fd(), any, &size), 0);
  const struct {
    std::string value;
    absl::StatusCode code;
  } cases[] = {
      {"nonsense", kInvalidArgument},
      {secret + " 127.0.0.1", kInvalidArgument},
      {absl::StrCat(secret, " 127.0.0.1:", ntohs(address.sin_port)),
       kUnavailable},
  };
  for (const auto& test : cases) {
    MemoryStore store;
    LOCKSTEP_ASSERT_OK(store.Set("group/tcp/0", test.value));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                  MakeTcpTransport(ContextOf(1, 2, store)));
    EXPECT_THAT(transport->Connect(), StatusIs(test.code, HasSubstr("rank 0")))
        << test.value;
  }
}

// Something that listens at the port of a rank that has gone.
TEST(TcpTransport, ConnectTellsARankFromWhatElseAnswers) {
  const Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(listen(listener.fd(), 8), 0);
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  ASSERT_EQ(
      getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &size),
      0);
  MemoryStore store;
  LOCKSTEP_ASSERT_OK(store.Set(
      "group/tcp/0", absl::StrCat(std::string(32, '0'),
                                  " 127.0.0.1:", ntohs(address.sin_port))));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeTcpTransport(ContextOf(1, 2, store)));
  std::thread connecting([&] {
    EXPECT_THAT(transport->Connect(),
                StatusIs(kUnavailable,
                         AllOf(HasSubstr("rank 0"), HasSubstr("answers"))));
  });
  const Descriptor accepted(accept(listener.fd(), nullptr, nullptr));
  const std::string answer(32, 'x');
  EXPECT_EQ(send(accepted.fd(), answer.data(), answer.size(), 0), 32);
  connecting.join();
}

}  // namespace
}  // namespace lockstep::internal_collective
