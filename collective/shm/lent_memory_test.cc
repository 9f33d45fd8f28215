#include "lockstep/collective/shm/lent_memory.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <future>  // NOLINT: threads wait for each other here
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>  // NOLINT: ranks are threads here
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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
#include "lockstep/collective/shm/over_lent_memory.h"
#include "lockstep/collective/shm/shm_transport.h"
#include "lockstep/collective/testing/conformance.h"
#include "lockstep/collective/testing/transport_testing.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {
namespace {

using testing::HasSubstr;

constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

// ---- Collectives of lent memory.

class LentMemoryOfSize : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Sizes, LentMemoryOfSize, testing::Values(1, 2, 3, 5));

// In one case, all ranks lend their data. In another, one does not.
TEST_P(LentMemoryOfSize, GivesTheResultsOfSlots) {
  for (const int one_stays_of : {0, GetParam()}) {
    OverLentMemoryOptions options;
    options.one_stays_of = one_stays_of;
    Ranks ranks(GetParam(), OverLentMemory(options));
    std::minstd_rand random(42);
    for (uint64_t number = 1; number <= 300; ++number) {
      Job job;
      job.number = number;
      job.kind = kWithShards[number % std::size(kWithShards)];
      job.dtype = kAllDTypes[random() % std::size(kAllDTypes)];
      job.op = Reduces(job.kind) ? ReduceOp::kMax : ReduceOp::kSum;
      job.root = static_cast<int>(random() % ranks.size());
      job.uneven = random() % 2 == 0;
      job.in_place = random() % 2 == 0;
      job.count = random() % (random() % 8 == 0 ? 500000 : 100);
      ASSERT_NO_FATAL_FAILURE(RunAndCheck(ranks, job));
    }
  }
}

TEST(LentMemory, StepsMayWrapAround) {
  OverLentMemoryOptions options;
  options.shm.count = UINT32_MAX - 15;
  Ranks ranks(2, OverLentMemory(options));
  Job job;
  job.kind = OpKind::kAllReduce;
  job.count = 1000;
  for (; job.number <= 20; ++job.number) {
    ASSERT_NO_FATAL_FAILURE(RunAndCheck(ranks, job));
  }
}

// In some of the operations, one rank does not lend its data.
TEST(LentMemory, Conforms) {
  OverLentMemoryOptions options;
  options.one_stays_of = 7;
  ExpectConforms(OverLentMemory(options));
}

// ---- A rank that fails while another one reads its memory.

// Two ranks with lent memory of their own, of which each is full of its number
// plus 1.
class Lenders {
 public:
  static constexpr int64_t kCount = 1 << 18;

  explicit Lenders(const ShmTesting& testing)
      : ranks_(2, [&](const TransportContext& context) {
          return MakeShmTransportFor(testing, context);
        }) {
    std::vector<std::string> addresses;
    for (int rank = 0; rank < 2; ++rank) {
      auto memory = ranks_[rank].Allocate(kCount * sizeof(float));
      LOCKSTEP_EXPECT_OK(memory);
      memories_.push_back(*std::move(memory));
      addresses.push_back(memories_[rank]->Address());
    }
    for (int rank = 0; rank < 2; ++rank) {
      LOCKSTEP_EXPECT_OK(memories_[rank]->Reach(addresses));
      Fill(rank, static_cast<float>(rank + 1));
    }
    for (const auto& memory : memories_) memory->Settle(/*is_shared=*/true);
  }

  float* floats(int rank) {
    return reinterpret_cast<float*>(memories_[rank]->data());
  }
  void Fill(int rank, float value) { std::fill_n(floats(rank), kCount, value); }
  absl::Status AllReduce(int rank) {
    Operation op;
    op.kind = OpKind::kAllReduce;
    op.in = op.out = BufferOf(floats(rank), kCount);
    return ranks_[rank].Run(op, 1);
  }
  Transport& transport(int rank) { return ranks_[rank]; }

 private:
  Ranks ranks_;
  std::vector<std::unique_ptr<RankMemory>> memories_;
};

// Rank 0 stands still before it reads the memory of rank 1. Rank 1 waits for
// it, is cancelled, and overwrites its memory.
void ExpectOverwrittenIsNoResult(ShmTesting::Reads where) {
  std::promise<void> stands, goes_on;
  bool has_stood = false;  // of rank 0 alone
  ShmTesting testing;
  testing.before_read = [&](int rank, ShmTesting::Reads reads) {
    if (rank != 0 || reads != where || std::exchange(has_stood, true)) return;
    stands.set_value();
    goes_on.get_future().wait();
  };
  Lenders lenders(testing);
  absl::Status of_zero;
  std::thread zero([&] { of_zero = lenders.AllReduce(0); });
  std::thread one([&] {
    EXPECT_THAT(lenders.AllReduce(1), StatusIs(absl::StatusCode::kCancelled));
  });
  stands.get_future().wait();
  // By then, rank 1 has most likely come to the next meeting. What is tested
  // also holds if it has not.
  absl::SleepFor(absl::Milliseconds(5));
  lenders.transport(1).Cancel();
  one.join();
  lenders.Fill(1, -1);
  goes_on.set_value();
  // If rank 1 has not come, rank 0 waits for it until it is cancelled, too.
  if (where == ShmTesting::Reads::kToReduce) lenders.transport(0).Cancel();
  zero.join();
  EXPECT_THAT(of_zero,
              testing::AnyOf(StatusIs(absl::StatusCode::kUnavailable,
                                      HasSubstr("rank 1 has ended early")),
                             StatusIs(absl::StatusCode::kCancelled)));
}

TEST(LentMemory, WhatWasOverwrittenIsNeverReduced) {
  ExpectOverwrittenIsNoResult(ShmTesting::Reads::kToReduce);
}

TEST(LentMemory, WhatWasOverwrittenIsNeverAResult) {
  ExpectOverwrittenIsNoResult(ShmTesting::Reads::kToCopy);
}

// Rank 1 gives two sums, so it is read in two places.
TEST(LentMemory, SumsOfShardsAreReadWhereTheyLie) {
  std::atomic<int> reads = 0;
  ShmTesting testing;
  testing.before_read = [&](int, ShmTesting::Reads) { ++reads; };
  Lenders lenders(testing);
  constexpr int64_t kSum = Lenders::kCount / 2;
  std::fill_n(lenders.floats(1) + kSum, kSum, 40.0F);
  const auto run = [&](int rank) {
    Operation op;
    op.kind = OpKind::kAllReduceShards;
    op.recv_counts = {2, 6};  // the sums of 0 and 1; of 2 and 3, and of 4 to 7
    op.in = BufferOf(lenders.floats(rank), rank == 0 ? kSum : 2 * kSum);
    op.out = BufferOf(lenders.floats(rank), kSum);
    LOCKSTEP_EXPECT_OK(lenders.transport(rank).Run(op, 1));
  };
  std::thread one([&] { run(1); });
  run(0);
  one.join();
  EXPECT_GT(reads, 0);
  for (int rank = 0; rank < 2; ++rank) {
    const absl::Span<const float> sums(lenders.floats(rank), kSum);
    EXPECT_THAT(sums, testing::Each(1 + 2 + 40));
  }
  EXPECT_EQ(lenders.floats(1)[kSum], 40);
}

// ---- Places.

TEST(LentMemory, IsFoundByItsPlace) {
  const auto lender = std::make_shared<LentMemories>(0, 2);
  const auto reader = std::make_shared<LentMemories>(1, 2);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto memory, lender->Allocate(1000));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto other, reader->Allocate(1000));
  EXPECT_EQ(lender->Find(memory->data(), 1).memory, 0u);
  const std::vector<std::string> addresses = {memory->Address(),
                                              other->Address()};
  LOCKSTEP_ASSERT_OK(other->Reach(addresses));
  memory->Settle(/*is_shared=*/true);

  const Place place = lender->Find(memory->data() + 100, 900);
  EXPECT_EQ(place.memory, 1u);
  EXPECT_EQ(place.offset, 100);
  EXPECT_EQ(lender->Find(memory->data() + 100, 901).memory, 0u);
  EXPECT_EQ(lender->Find(memory->data() - 1, 1).memory, 0u);
  EXPECT_EQ(lender->Find(memory->data() + 1001, 0).memory, 0u);

  memory->data()[100] = 'a';
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const LentBytes bytes,
                                reader->Of(0, place, 900));
  EXPECT_NE(bytes.data, memory->data() + 100);
  EXPECT_EQ(*bytes.data, 'a');
  for (const Place& wrong :
       {Place{1, 101}, Place{1, -1}, Place{2, 0}, Place{1, INT64_MAX}}) {
    EXPECT_THAT(reader->Of(0, wrong, 900),
                StatusIs(kFailedPrecondition, HasSubstr("rank 0 has lent no")));
  }
}

TEST(LentMemory, AddressesThatAreNoneAreRefused) {
  const auto lent = std::make_shared<LentMemories>(0, 2);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto memory, lent->Allocate(1000));
  for (const char* address : {"", "nonsense", "0:1/2/3/4", "1:1/2"}) {
    EXPECT_THAT(memory->Reach({"", address}),
                StatusIs(kFailedPrecondition, HasSubstr("rank 1")));
  }
}

// Returns how often the memory of this process holds shared memory with these
// rights, as /proc shows them.
int Mappings(const std::string& rights) {
  std::ifstream maps("/proc/self/maps");
  int mappings = 0;
  for (std::string line; std::getline(maps, line);) {
    mappings += absl::StrContains(line, "lockstep_shm") &&
                absl::StrContains(line, rights);
  }
  return mappings;
}

TEST(LentMemory, IsMappedForReadingAloneAndSoonGivenUp) {
  const auto lender = std::make_shared<LentMemories>(0, 2);
  const auto reader = std::make_shared<LentMemories>(1, 2);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto memory, lender->Allocate(1000));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto other, reader->Allocate(1000));
  LOCKSTEP_ASSERT_OK(other->Reach({memory->Address(), ""}));
  memory->Settle(/*is_shared=*/true);
  EXPECT_EQ(Mappings("r--s"), 1);
  EXPECT_EQ(Mappings("rw-s"), 2);
  memory->data()[0] = 'a';
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(LentBytes bytes, reader->Of(0, {1, 0}, 1));
  memory = nullptr;
  EXPECT_EQ(*bytes.data, '\0') << "the pages are still there";
  reader->DropRetired();
  EXPECT_EQ(Mappings("r--s"), 1) << "an operation still reads it";
  bytes = LentBytes();
  EXPECT_EQ(Mappings("r--s"), 0);
  EXPECT_THAT(reader->Of(0, {1, 0}, 1), StatusIs(kFailedPrecondition));
  other = nullptr;
  EXPECT_EQ(Mappings("lockstep_shm"), 0);
}

TEST(LentMemory, OutlivesItsTransportAndLeavesNothingBehind) {
  const int files = HeldNow().files;
  MemoryStore store;
  std::unique_ptr<RankMemory> memory;
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                  MakeShmTransport(ContextOf(0, 1, store)));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(memory, transport->Allocate(1000));
    memory->Settle(/*is_shared=*/true);
  }
  EXPECT_EQ(HeldNow().files, files) << "its file is still open";
  memory->data()[999] = 'a';
  memory = nullptr;
  EXPECT_EQ(Mappings("lockstep_shm"), 0);
}

TEST(LentMemory, OfOthersIsGivenUpAtTheGroupsEndOrIfItIsNotShared) {
  for (const bool is_shared : {true, false}) {
    auto ranks = std::make_unique<Ranks>(2, MakeShmTransport);
    std::vector<std::unique_ptr<RankMemory>> memories;
    std::vector<std::string> addresses;
    for (int rank = 0; rank < 2; ++rank) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto memory, (*ranks)[rank].Allocate(1000));
      addresses.push_back(memory->Address());
      memories.push_back(std::move(memory));
    }
    for (const auto& memory : memories) {
      LOCKSTEP_ASSERT_OK(memory->Reach(addresses));
    }
    for (const auto& memory : memories) memory->Settle(is_shared);
    EXPECT_EQ(Mappings("r--s"), is_shared ? 2 : 0);
    ranks = nullptr;
    EXPECT_EQ(Mappings("r--s"), 0);
    EXPECT_EQ(Mappings("rw-s"), 2);
  }
}

// A forked process has neither the memory nor its mappings, and ends the owner
// without harm.
TEST(LentMemory, IsNotInForkedProcesses) {
  const auto lent = std::make_shared<LentMemories>(0, 1);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto memory, lent->Allocate(1000));
  memory->Settle(/*is_shared=*/true);
  memory->data()[0] = 'a';
  const pid_t child = fork();
  if (child == 0) {
    const int mappings = Mappings("lockstep_shm");
    memory = nullptr;
    _exit(mappings);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory->data()[0], 'a');
}

}  // namespace
}  // namespace lockstep::internal_collective
