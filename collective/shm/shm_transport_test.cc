#include "lockstep/collective/shm/shm_transport.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>  // NOLINT: ranks are threads here
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/held.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/shm/shm_neighbourhood.h"
#include "lockstep/collective/shm/slot_plan.h"
#include "lockstep/collective/testing/transport_testing.h"

namespace lockstep::internal_collective {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr auto kCancelled = absl::StatusCode::kCancelled;
constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

class ShmTransportOfSize : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Sizes, ShmTransportOfSize,
                         testing::Values(1, 2, 3, 5));

TEST_P(ShmTransportOfSize, DoesEveryKindWithAnyCount) {
  Ranks ranks(GetParam(), MakeShmTransport);
  Job job;
  for (const OpKind kind : kWithShards) {
    job.kind = kind;
    // Counts around the limit of small operations for some number of ranks, and
    // around the size of a slot.
    for (const int64_t count :
         {0, 1, 7, 1000, 13107, 13108, 21845, 21846, 32768, 32769, 131073}) {
      job.count = count;
      job.root = static_cast<int>(job.number) % ranks.size();
      job.uneven = job.number % 2 == 0;
      job.in_place = job.number % 3 == 0;
      ++job.number;
      RunAndCheck(ranks, job);
    }
  }
}

// A slot has 8192 cache lines.
TEST(SlotPlan, HasRoomForSumsOfManyRanks) {
  EXPECT_TRUE(SlotPlan::HasRoom(/*size=*/1024, /*most_inputs=*/8));
  EXPECT_FALSE(SlotPlan::HasRoom(1024, 9));
  EXPECT_TRUE(SlotPlan::HasRoom(2, 4096));
  Operation op;
  op.kind = OpKind::kAllReduceShards;
  op.out.count = 1 << 20;
  SlotPlan plan;
  plan.Set(op, /*rank=*/3, /*size=*/1024, /*most_inputs=*/8);
  EXPECT_EQ(plan.region, 64);
  EXPECT_EQ(plan.give.size(), 1024u);
}

TEST_P(ShmTransportOfSize, DoesWhatNeedsManySteps) {
  Ranks ranks(GetParam(), MakeShmTransport);
  Job job;
  job.count = (5 << 20) / 4 + 1;
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduce}) {
    job.kind = kind;
    for (const bool in_place : {false, true}) {
      job.in_place = in_place;
      ++job.number;
      RunAndCheck(ranks, job);
    }
  }
  job.count /= ranks.size();
  for (const OpKind kind : {OpKind::kReduceScatter, OpKind::kAllGather,
                            OpKind::kScatter, OpKind::kAllToAll}) {
    job.kind = kind;
    job.in_place = !job.in_place;
    ++job.number;
    RunAndCheck(ranks, job);
  }
}

TEST_P(ShmTransportOfSize, TakesEveryTypeAndReduction) {
  Ranks ranks(GetParam(), MakeShmTransport);
  Job job;
  for (const DType dtype : kAllDTypes) {
    job.dtype = dtype;
    for (const ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax,
          ReduceOp::kProd, ReduceOp::kBitAnd, ReduceOp::kBitOr}) {
      job.op = op;
      job.scale = IsFloatingPoint(dtype) ? 0.3 : 1;
      if (!CheckReduction(dtype, op, job.scale).ok()) continue;
      job.kind = OpKind::kAllReduce;
      for (const int64_t bytes : {24, 140000}) {
        job.count = bytes / SizeOf(dtype);
        ++job.number;
        RunAndCheck(ranks, job);
      }
    }
    job.op = ReduceOp::kSum;
    job.kind = OpKind::kAllToAll;
    RunAndCheck(ranks, job);
  }
}

// Compares with numbers that are written here.
TEST(ShmTransport, SumsAndMoves) {
  Ranks ranks(3, MakeShmTransport);
  ranks.ForEach([&](int rank) {
    Operation op;
    op.kind = OpKind::kAllReduce;
    op.dtype = DType::kI32;
    std::vector<int32_t> values = {1 + rank, 10 * rank};
    op.in = ConstBufferOf(absl::MakeConstSpan(values));
    op.out = BufferOf(absl::MakeSpan(values));
    LOCKSTEP_EXPECT_OK(ranks[rank].Run(op, 1));
    EXPECT_THAT(values, testing::ElementsAre(6, 30));

    op.kind = OpKind::kAllToAll;
    const std::vector<int32_t> in = {rank * 10, rank * 10 + 1, rank * 10 + 2};
    std::vector<int32_t> out(3);
    op.in = ConstBufferOf(absl::MakeConstSpan(in));
    op.out = BufferOf(absl::MakeSpan(out));
    op.send_counts = op.recv_counts = {1, 1, 1};
    LOCKSTEP_EXPECT_OK(ranks[rank].Run(op, 2));
    EXPECT_THAT(out, testing::ElementsAre(rank, 10 + rank, 20 + rank));
  });
}

TEST_P(ShmTransportOfSize, RunsAnySequencePostedOrNot) {
  Ranks ranks(GetParam(), MakeShmTransport);
  ranks.ForEach([&](int rank) {
    std::minstd_rand common(42);  // the same on all ranks
    std::minstd_rand own(1000 + rank);
    for (uint64_t number = 1; number <= 2000; ++number) {
      Job job;
      job.number = number;
      job.kind = kWithShards[common() % std::size(kWithShards)];
      job.dtype = kAllDTypes[common() % std::size(kAllDTypes)];
      job.op = Reduces(job.kind) ? ReduceOp::kMax : ReduceOp::kSum;
      job.root = static_cast<int>(common() % ranks.size());
      job.uneven = common() % 2 == 0;
      job.in_place = common() % 2 == 0;
      job.count = common() % (common() % 64 == 0 ? 100000 : 100);
      Part part(job, rank, ranks.size());
      if (own() % 2 == 0) part.Post(ranks[rank]);
      ASSERT_NO_FATAL_FAILURE(part.RunAndCheck(ranks[rank]));
    }
  });
}

TEST(ShmTransport, PostsWhatIsSmall) {
  Ranks ranks(2, MakeShmTransport);
  Job job;
  job.kind = OpKind::kAllReduce;
  job.count = 1000;
  Part first(job, 0, 2);
  ASSERT_TRUE(first.Post(ranks[0]));
  // The other rank needs nothing more from it.
  Part second(job, 1, 2);
  second.RunAndCheck(ranks[1]);
  first.RunAndCheck(ranks[0]);

  job.count = 1 << 20;
  EXPECT_FALSE(Part(job, 0, 2).Post(ranks[0]));
}

TEST(ShmTransport, ARankMayGoBeforeTheOthersHaveRead) {
  Ranks ranks(2, MakeShmTransport);
  Job job;
  job.kind = OpKind::kAllGather;
  job.count = 1000;
  EXPECT_TRUE(Part(job, 0, 2).Post(ranks[0]));
  ranks.Drop(0);
  Part(job, 1, 2).RunAndCheck(ranks[1]);
}

// ---- Counters that wrap around.

Ranks RanksCountingFrom(uint32_t count) {
  ShmTesting testing;
  testing.count = count;
  return Ranks(2, [testing](const TransportContext& context) {
    return MakeShmTransportFor(testing, context);
  });
}

TEST(ShmTransport, ARankMayBeAStepAheadWhereStepsWrapAround) {
  Ranks ranks = RanksCountingFrom(UINT32_MAX - 15);
  Job job;
  job.kind = OpKind::kAllReduce;
  job.count = 1000;
  auto ahead = std::make_unique<Part>(job, 0, 2);
  while (job.number < 32) {
    Part behind(job, 1, 2);
    ASSERT_TRUE(behind.Post(ranks[1]));
    ahead->RunAndCheck(ranks[0]);
    ++job.number;
    ahead = std::make_unique<Part>(job, 0, 2);
    ASSERT_TRUE(ahead->Post(ranks[0]));
    behind.RunAndCheck(ranks[1]);
  }
}

TEST(ShmTransport, MessagesArriveWhereTheirBytesWrapAround) {
  Ranks ranks = RanksCountingFrom(UINT32_MAX - 4095);
  for (uint64_t tag = 0; tag < 8; ++tag) {
    const Bytes in = Random(DType::kU8, 1000, tag);
    Bytes out(1000);
    LOCKSTEP_ASSERT_OK(
        ranks[0].Send(1, ConstBuffer(in.data(), 1000, DType::kU8), tag));
    LOCKSTEP_ASSERT_OK(
        ranks[1].Recv(0, Buffer{out.data(), 1000, DType::kU8, {}}, tag));
    EXPECT_TRUE(in == out) << "message " << tag;
  }
}

// ---- Ranks that do not do the same.

TEST(ShmTransport, OtherOperationsMoveNothing) {
  for (const int64_t count : {10, 1 << 20}) {
    Ranks ranks(3, MakeShmTransport);
    Job job;
    job.count = count;
    // Two ranks find out without the third one.
    const auto differ = [&](int rank) {
      Job own = job;
      own.kind = rank == 0 ? OpKind::kBroadcast : OpKind::kAllGather;
      Part part(own, rank, 3);
      EXPECT_THAT(part.Run(ranks[rank]),
                  StatusIs(kFailedPrecondition, HasSubstr("fingerprints")));
      EXPECT_TRUE(rank == 0 ||
                  part.Result() == Bytes(part.expected().size(), 'x'));
      // The error stays.
      EXPECT_THAT(part.Run(ranks[rank]), StatusIs(kFailedPrecondition));
      EXPECT_FALSE(part.Post(ranks[rank]));
    };
    std::thread first(differ, 0), second(differ, 1);
    first.join();
    second.join();
    differ(2);
  }
}

TEST(ShmTransport, ContradictingCountsMoveNothing) {
  Ranks ranks(3, MakeShmTransport);
  ranks.ForEach([&](int rank) {
    Operation op;
    op.kind = OpKind::kAllToAll;
    op.dtype = DType::kU8;
    op.send_counts = {2, 2, 2};
    op.recv_counts = {2, 2, 2};
    if (rank == 1) op.send_counts[2] = 1;
    std::vector<uint8_t> in(rank == 1 ? 5 : 6, 7), out(6, 0);
    op.in = ConstBufferOf(absl::MakeConstSpan(in));
    op.out = BufferOf(absl::MakeSpan(out));
    EXPECT_THAT(
        ranks[rank].Run(op, 1),
        StatusIs(
            kFailedPrecondition,
            HasSubstr("rank 1 sends 1 elements to rank 2, which takes 2")));
    EXPECT_THAT(out, Each(0));
  });
}

// ---- Messages.

TEST(ShmTransport, SendsOfAnySizeBothWaysBesideCollectives) {
  Ranks ranks(3, MakeShmTransport);
  const std::vector<int64_t> counts = {0, 1, 15, 16, 17, 65520, 65536, 1000003};
  ranks.ForEach([&](int rank) {
    std::vector<std::thread> lanes;
    for (int other = 0; other < 3; ++other) {
      if (other == rank) continue;
      lanes.emplace_back([&, other] {
        for (size_t i = 0; i < counts.size(); ++i) {
          const Bytes in = Random(DType::kU8, counts[i], i * 10 + rank);
          LOCKSTEP_EXPECT_OK(ranks[rank].Send(
              other, ConstBuffer(in.data(), counts[i], DType::kU8), i));
        }
      });
      lanes.emplace_back([&, other] {
        for (size_t i = 0; i < counts.size(); ++i) {
          Bytes out(counts[i]);
          LOCKSTEP_EXPECT_OK(ranks[rank].Recv(
              other, Buffer{out.data(), counts[i], DType::kU8, {}}, i));
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

TEST(ShmTransport, ASmallSendWaitsForNobody) {
  Ranks ranks(2, MakeShmTransport);
  std::vector<int32_t> in(1000, 5), out(1000);
  for (uint64_t tag = 0; tag < 10; ++tag) {
    LOCKSTEP_ASSERT_OK(
        ranks[0].Send(1, ConstBufferOf(absl::MakeConstSpan(in)), tag));
  }
  for (uint64_t tag = 0; tag < 10; ++tag) {
    LOCKSTEP_ASSERT_OK(ranks[1].Recv(0, BufferOf(absl::MakeSpan(out)), tag));
    EXPECT_EQ(out, in);
  }
}

TEST(ShmTransport, MessagesThatDoNotFitAreNotReceived) {
  Ranks ranks(2, MakeShmTransport);
  std::vector<int32_t> in(10, 5), out(10), longer(11);
  LOCKSTEP_ASSERT_OK(
      ranks[0].Send(1, ConstBufferOf(absl::MakeConstSpan(in)), 77));
  EXPECT_THAT(ranks[1].Recv(0, BufferOf(absl::MakeSpan(out)), 78),
              StatusIs(kFailedPrecondition,
                       AllOf(HasSubstr("tag 77"), HasSubstr("tag 78"))));
  EXPECT_THAT(ranks[1].Recv(0, BufferOf(absl::MakeSpan(longer)), 77),
              StatusIs(kFailedPrecondition, HasSubstr("40 bytes")));
  EXPECT_THAT(out, Each(0));
  EXPECT_THAT(longer, Each(0));
}

// ---- Cancel.

// After this time, a call is most likely asleep. What is tested also holds if
// it is not.
void LetItWait() { absl::SleepFor(absl::Milliseconds(5)); }

TEST(ShmTransport, CancelEndsConnectThatWaitsForAnAddress) {
  MemoryStore store;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeShmTransport(ContextOf(0, 2, store)));
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

TEST(ShmTransport, CancelEndsConnectThatWaitsToBeMapped) {
  MemoryStore store;
  DeafStore deaf(store);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto first,
                                MakeShmTransport(ContextOf(0, 2, store)));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto second,
                                MakeShmTransport(ContextOf(1, 2, deaf)));
  std::thread connects[] = {
      std::thread([&] { EXPECT_THAT(first->Connect(), StatusIs(kCancelled)); }),
      std::thread(
          [&] { EXPECT_THAT(second->Connect(), StatusIs(kCancelled)); })};
  LetItWait();
  first->Cancel();
  second->Cancel();
  for (std::thread& connect : connects) connect.join();
}

TEST(ShmTransport, CancelEndsWhatRunsAndWhatComes) {
  Ranks ranks(2, MakeShmTransport);
  Job job;
  job.kind = OpKind::kAllReduce;
  job.count = 1000;
  Bytes in(1 << 20), out(10);
  const ConstBuffer much(in.data(), 1 << 20, DType::kU8);
  const Buffer little{out.data(), 10, DType::kU8, {}};
  const auto run = [&] {
    EXPECT_THAT(Part(job, 0, 2).Run(ranks[0]), StatusIs(kCancelled));
  };
  const auto send = [&] {
    EXPECT_THAT(ranks[0].Send(1, much, 1), StatusIs(kCancelled));
  };
  const auto receive = [&] {
    EXPECT_THAT(ranks[0].Recv(1, little, 1), StatusIs(kCancelled));
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
  EXPECT_FALSE(Part(job, 0, 2).Post(ranks[0]));
}

// ---- Processes.

std::string FolderFor(absl::string_view test) {
  std::string folder =
      absl::StrCat(testing::TempDir(), "/shm_transport_", test, "_XXXXXX");
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  return folder;
}

// Runs rank 1 of 2 in a process of its own, and returns the id of that process.
// Its exit code is what `run` returns.
pid_t ForkRankOne(const std::string& folder,
                  const std::function<bool(Transport&)>& run) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // if the test ends early
  FileStore store(folder);
  auto transport = MakeShmTransport(ContextOf(1, 2, store));
  _exit(transport.ok() && (*transport)->Connect().ok() && run(**transport) ? 0
                                                                           : 1);
}

int WaitFor(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

std::vector<Job> SomeOfAllKinds() {
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
  return jobs;
}

TEST(ShmTransport, JoinsProcesses) {
  const std::string folder = FolderFor("joins");
  const pid_t child = ForkRankOne(folder, [](Transport& transport) {
    for (const Job& job : SomeOfAllKinds()) {
      Part part(job, 1, 2);
      if (!part.Run(transport).ok() || part.Result() != part.expected()) {
        return false;
      }
    }
    Bytes bytes(1000000);
    const Buffer buffer{bytes.data(), 1000000, DType::kU8, {}};
    return transport.Recv(0, buffer, 3).ok() &&
           transport.Send(0, buffer, 4).ok();
  });
  FileStore store(folder);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeShmTransport(ContextOf(0, 2, store)));
  LOCKSTEP_ASSERT_OK(transport->Connect());
  for (const Job& job : SomeOfAllKinds()) {
    Part(job, 0, 2).RunAndCheck(*transport);
  }
  const Bytes in = Random(DType::kU8, 1000000, 1);
  Bytes out(1000000);
  LOCKSTEP_EXPECT_OK(
      transport->Send(1, ConstBuffer(in.data(), 1000000, DType::kU8), 3));
  LOCKSTEP_EXPECT_OK(
      transport->Recv(1, Buffer{out.data(), 1000000, DType::kU8, {}}, 4));
  EXPECT_TRUE(in == out);
  EXPECT_EQ(WaitFor(child), 0);
}

TEST(ShmTransport, CancelEndsTheWaitForAKilledProcess) {
  const std::string folder = FolderFor("killed");
  const pid_t child = ForkRankOne(folder, [](Transport&) {
    for (;;) pause();
    return false;
  });
  FileStore store(folder);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeShmTransport(ContextOf(0, 2, store)));
  LOCKSTEP_ASSERT_OK(transport->Connect());
  kill(child, SIGKILL);
  WaitFor(child);
  Job job;
  job.kind = OpKind::kAllReduce;
  job.count = 1 << 20;
  std::thread run([&] {
    EXPECT_THAT(Part(job, 0, 2).Run(*transport), StatusIs(kCancelled));
  });
  LetItWait();
  transport->Cancel();
  run.join();
}

int SharedMappings() {
  std::ifstream maps("/proc/self/maps");
  int mappings = 0;
  for (std::string line; std::getline(maps, line);) {
    mappings += line.find("lockstep_shm") != std::string::npos;
  }
  return mappings;
}

TEST(ShmTransport, LeavesNothingBehind) {
  const int files = HeldNow().files;
  MemoryStore store;
  for (int i = 0; i < 100; ++i) {
    LOCKSTEP_ASSERT_OK(MakeShmTransport(ContextOf(0, 2, store)));
  }
  {
    Ranks ranks(2, MakeShmTransport);
    EXPECT_EQ(HeldNow().files,
              files);  // when all ranks have reached each other
    EXPECT_EQ(SharedMappings(), 2);
  }
  EXPECT_EQ(HeldNow().files, files);
  EXPECT_EQ(SharedMappings(), 0);
}

// ---- What is refused.

TEST(ShmTransport, RefusesWhatItCannotDo) {
  MemoryStore store;
  EXPECT_THAT(MakeShmTransport(ContextOf(0, 1025, store)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("1024"), HasSubstr("1025"))));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeShmTransport(ContextOf(0, 1, store)));
  EXPECT_EQ(transport->name(), "shm");
  Operation op;
  LOCKSTEP_EXPECT_OK(transport->CheckSupported(op));
  op.in.device.kind = Device::Kind::kCuda;
  EXPECT_THAT(transport->CheckSupported(op),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("CUDA")));
}

TEST(ShmTransport, ConnectNamesTheRankThatCannotBeReached) {
  MemoryStore store;
  LOCKSTEP_ASSERT_OK(store.Set("group/shm/1", "nonsense"));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeShmTransport(ContextOf(0, 2, store)));
  EXPECT_THAT(transport->Connect(),
              StatusIs(kFailedPrecondition,
                       AllOf(HasSubstr("rank 1"), HasSubstr("'nonsense'"))));
}

TEST(ShmTransport, KnowsItsNeighbourhood) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string here, ShmNeighbourhood());
  EXPECT_THAT(ShmNeighbourhood(), IsOkAndHolds(here));
  EXPECT_THAT(here, testing::ContainsRegex("^[0-9a-f-]+/[1-9][0-9]*/[0-9]+$"));
}

}  // namespace
}  // namespace lockstep::internal_collective
