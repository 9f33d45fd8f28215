#include "lockstep/collective/gloo/gloo_transport.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

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

#include "absl/base/attributes.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/held.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/testing/port_scanner.h"
#include "lockstep/collective/testing/transport_testing.h"

namespace lockstep::internal_collective {
namespace {

using testing::AnyOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kCancelled = absl::StatusCode::kCancelled;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;
constexpr auto kInvalidArgument = absl::StatusCode::kInvalidArgument;

// The transports of a group.
// Thread-safety: thread-compatible.
class GlooRanks : public Ranks {
 public:
  explicit GlooRanks(int size) : Ranks(size, MakeGlooTransport) {}
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

class GlooTransportOfSize : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Sizes, GlooTransportOfSize,
                         testing::Values(1, 2, 3, 5));

TEST_P(GlooTransportOfSize, DoesEveryKindWithAnyCount) {
  GlooRanks ranks(GetParam());
  Job job;
  for (const OpKind kind : kCollectives) {
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

TEST_P(GlooTransportOfSize, DoesWhatNeedsManyPieces) {
  GlooRanks ranks(GetParam());
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

TEST(GlooTransport, TakesEveryTypeAndReduction) {
  GlooRanks ranks(3);
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
TEST(GlooTransport, SumsAndMoves) {
  GlooRanks ranks(3);
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

TEST_P(GlooTransportOfSize, RunsAnySequencePostedOrNot) {
  GlooRanks ranks(GetParam());
  ranks.ForEach([&](int rank) {
    std::minstd_rand random(42);  // the same on all ranks
    std::minstd_rand own(1000 + rank);
    for (uint64_t number = 1; number <= 300; ++number) {
      Job job;
      job.number = number;
      job.kind = kCollectives[random() % std::size(kCollectives)];
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

TEST(GlooTransport, PostsWhatIsSmall) {
  GlooRanks ranks(2);
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

TEST(GlooTransport, ABarrierWaitsForAll) {
  GlooRanks ranks(5);
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
TEST(GlooTransport, DestroyingTheSenderLosesNoSentData) {
  for (int i = 0; i < 5; ++i) {
    GlooRanks ranks(2);
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

TEST(GlooTransport, OtherOperationsMoveNothing) {
  for (const int64_t count : {10, 100000}) {
    GlooRanks ranks(3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&ranks, count, rank] {
        Job job;
        job.kind = OpKind::kAllReduce;
        job.count = count;
        job.number = rank == 2 ? 2 : 1;
        Part part(job, rank, 3);
        EXPECT_THAT(part.Run(ranks[rank]), StatusIs(kCancelled));
        EXPECT_TRUE(part.Result() == Bytes(part.expected().size(), 'x'));
      });
    }
    LetItWait();
    for (int rank = 0; rank < 3; ++rank) ranks[rank].Cancel();
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(GlooTransport, OtherSizesMoveNothing) {
  GlooRanks ranks(2);
  Bytes out(10, 'x');
  std::thread receiver([&] {
    EXPECT_THAT(ranks[1].Recv(0, Writing(out), 1), StatusIs(kCancelled));
  });
  const Bytes in(11, 'y');
  std::thread sender([&] {
    EXPECT_THAT(ranks[0].Send(1, Reading(in), 1), StatusIs(kCancelled));
  });
  LetItWait();
  for (int rank = 0; rank < 2; ++rank) ranks[rank].Cancel();
  receiver.join();
  sender.join();
  EXPECT_THAT(out, Each('x'));
}

TEST(GlooTransport, ContradictingCountsDoNotMeet) {
  GlooRanks ranks(3);
  Bytes outs[3];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&ranks, &outs, rank] {
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
      EXPECT_THAT(ranks[rank].Run(op, 1), rank == 0
                                              ? StatusIs(absl::StatusCode::kOk)
                                              : StatusIs(kCancelled));
    });
  }
  threads[0].join();
  for (int rank : {1, 2}) ranks[rank].Cancel();
  for (int rank : {1, 2}) threads[rank].join();
  EXPECT_EQ(outs[2][2], 'x');
  EXPECT_EQ(outs[2][3], 'x');
}

// ---- Messages.

TEST(GlooTransport, SendsOfAnySizeBothWaysBesideCollectives) {
  GlooRanks ranks(3);
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

TEST(GlooTransport, MessagesWithOneTagKeepTheirOrder) {
  GlooRanks ranks(2);
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

TEST(GlooTransport, AnotherTagWaits) {
  GlooRanks ranks(2);
  const Bytes in(10, 'y');
  Bytes out(10, 'x');
  std::thread sender([&] {
    EXPECT_THAT(ranks[0].Send(1, Reading(in), 77), StatusIs(kCancelled));
  });
  std::thread receiver([&] {
    EXPECT_THAT(ranks[1].Recv(0, Writing(out), 78), StatusIs(kCancelled));
  });
  LetItWait();
  for (int rank = 0; rank < 2; ++rank) ranks[rank].Cancel();
  sender.join();
  receiver.join();
  EXPECT_THAT(out, Each('x'));
}

// ---- Cancel.

TEST(GlooTransport, CancelEndsConnectThatWaitsForAnAddress) {
  MemoryStore store;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeGlooTransport(ContextOf(0, 2, store)));
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

// The ports of two ranks decide which of them connects to the other.
TEST(GlooTransport, CancelEndsConnectThatWaitsForTheOther) {
  for (int i = 0; i < 10; ++i) {
    MemoryStore store;
    DeafStore deaf(store);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto first,
                                  MakeGlooTransport(ContextOf(0, 2, store)));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto second,
                                  MakeGlooTransport(ContextOf(1, 2, deaf)));
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

TEST(GlooTransport, CancelEndsWhatRunsAndWhatComes) {
  GlooRanks ranks(2);
  Job job;
  job.kind = OpKind::kAllReduce;
  job.count = 1000;
  const Bytes much(1 << 20);
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

// The sender finds that the receiver is ready, and sends. But the memory does
// not belong to the transport any more.
TEST(GlooTransport, MemoryIsNotWrittenAfterCancel) {
  for (const int64_t count : {int64_t{100}, int64_t{8} << 20}) {
    Bytes out(count, 'x');
    GlooRanks ranks(2);
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

// The thread sanitizer does not know that Gloo has finished writing these
// bytes: see tools/thread_suppressions.txt.
ABSL_ATTRIBUTE_NO_SANITIZE_THREAD int64_t CountAndFill(Bytes& bytes, char what,
                                                       char with) {
  int64_t count = 0;
  volatile char* const end = bytes.data() + bytes.size();
  for (volatile char* byte = bytes.data(); byte < end; ++byte) {
    count += *byte == what;
    *byte = with;
  }
  return count;
}

// Cancels in the middle of a message.
TEST(GlooTransport, MemoryIsNotWrittenAfterCancelOfWhatHasBegun) {
  constexpr int64_t kBytes = 16 << 20;
  const Bytes in(kBytes, 'y');
  Bytes out(kBytes, 'x');
  GlooRanks ranks(2);  // destroyed first, with Gloo's threads
  std::thread sender([&] {
    EXPECT_THAT(ranks[0].Send(1, Reading(in), 1),
                AnyOf(IsOk(), StatusIs(kCancelled)));
  });
  std::thread receiver([&] {
    EXPECT_THAT(ranks[1].Recv(0, Writing(out), 1),
                AnyOf(IsOk(), StatusIs(kCancelled)));
    CountAndFill(out, 'y', 'z');
  });
  LetItWait();
  ranks[1].Cancel();
  receiver.join();
  LetItWait();
  ranks[0].Cancel();
  sender.join();
  EXPECT_EQ(CountAndFill(out, 'z', 'z'), kBytes);
}

// ---- Ranks that go.

TEST(GlooTransport, ARankThatGoesEndsWhatNeedsIt) {
  for (const int64_t count : {1000, 1000000}) {
    GlooRanks ranks(3);
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
// told. In older releases, Gloo's thread throws if a connection is reset
// between two of its system calls, which nobody can catch.
#if __has_include(<gloo/transport/tcp/listener.h>)
TEST(GlooTransport, ARankMayGoWhileAllConnect) {
  constexpr int kSize = 5;
  for (int i = 0; i < 20; ++i) {
    MemoryStore store;
    std::vector<std::unique_ptr<Transport>> ranks;
    for (int rank = 0; rank < kSize; ++rank) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          auto transport, MakeGlooTransport(ContextOf(rank, kSize, store)));
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
#endif

TEST(GlooTransport, ADestroyedRankLeavesOthersWhole) {
  GlooRanks ranks(3);
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

TEST(GlooTransport, StrangersGetNothingOfAGroupThatIsConnected) {
  GlooRanks ranks(2);
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

// Strangers may make a group fail while it is made, and it says so.
TEST(GlooTransport, StrangersAtItsPortsEndNoProcess) {
  constexpr int kSize = 3;
  const PortScanner scanner;
  for (int groups = 0; groups < 10 || scanner.count() < 30; ++groups) {
    MemoryStore store;
    std::vector<std::unique_ptr<Transport>> ranks;
    for (int rank = 0; rank < kSize; ++rank) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          auto transport, MakeGlooTransport(ContextOf(rank, kSize, store)));
      ranks.push_back(std::move(transport));
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kSize; ++rank) {
      threads.emplace_back([&, rank] {
        const absl::Status status = ranks[rank]->Connect();
        EXPECT_THAT(status, AnyOf(IsOk(), StatusIs(kCancelled),
                                  StatusIs(kUnavailable, HasSubstr("rank"))));
        // The group ends on all ranks when it fails on one.
        if (status.ok()) return;
        for (const auto& other : ranks) other->Cancel();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// ---- Processes.

std::string NewFolder() {
  std::string folder =
      absl::StrCat(testing::TempDir(), "/gloo_transport_XXXXXX");
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
  auto transport = MakeGlooTransport(ContextOf(1, 2, store));
  _exit(transport.ok() && (*transport)->Connect().ok() && run(**transport) ? 0
                                                                           : 1);
}

int WaitFor(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(GlooTransport, JoinsProcesses) {
  std::vector<Job> jobs;
  Job job;
  for (const OpKind kind : kCollectives) {
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
                                MakeGlooTransport(ContextOf(0, 2, store)));
  LOCKSTEP_ASSERT_OK(transport->Connect());
  for (const Job& job : jobs) Part(job, 0, 2).RunAndCheck(*transport);
  EXPECT_EQ(WaitFor(child), 0);
}

// The signal for a write to the dead process does not end this one, either.
TEST(GlooTransport, AKilledProcessEndsWhatNeedsIt) {
  const std::string folder = NewFolder();
  const pid_t child = ForkRankOne(folder, [](Transport&) {
    for (;;) pause();
    return false;
  });
  FileStore store(folder);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeGlooTransport(ContextOf(0, 2, store)));
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

TEST(GlooTransport, LeavesNothingBehind) {
  { GlooRanks ranks(2); }
  const Held before = HeldNow();
  MemoryStore store;
  for (int i = 0; i < 100; ++i) {
    LOCKSTEP_ASSERT_OK(MakeGlooTransport(ContextOf(0, 2, store)));
  }
  for (int i = 0; i < 10; ++i) {
    GlooRanks ranks(2);
    Job job;
    RunAndCheck(ranks, job);
  }
  EXPECT_EQ(WhatGrew(GrowthSince(before), 0), "");
}

TEST(GlooTransport, RefusesWhatItCannotDo) {
  MemoryStore store;
  EXPECT_THAT(MakeGlooTransport(ContextOf(2, 2, store)),
              StatusIs(kInvalidArgument, HasSubstr("rank=2")));
  TransportContext elsewhere = ContextOf(0, 2, store);
  elsewhere.address = "192.0.2.1";  // no host has it
  EXPECT_THAT(MakeGlooTransport(elsewhere),
              StatusIs(kInvalidArgument, HasSubstr("'192.0.2.1'")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeGlooTransport(ContextOf(0, 1, store)));
  EXPECT_EQ(transport->name(), "gloo");
  Operation op;
  LOCKSTEP_EXPECT_OK(transport->CheckSupported(op));
  op.in.device.kind = Device::Kind::kCuda;
  EXPECT_THAT(transport->CheckSupported(op),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("CUDA")));
}

TEST(GlooTransport, ConnectNamesTheRankThatCannotBeReached) {
  MemoryStore store;
  LOCKSTEP_ASSERT_OK(store.Set("group/gloo/1", "nonsense"));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeGlooTransport(ContextOf(0, 2, store)));
  EXPECT_THAT(transport->Connect(),
              StatusIs(kUnavailable, HasSubstr("rank 1")));
}

}  // namespace
}  // namespace lockstep::internal_collective
