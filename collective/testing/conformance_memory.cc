#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/group_memory.h"
#include "lockstep/collective/testing/conformance_parts.h"

namespace lockstep::internal_collective {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// So many that over shm an operation is no small one.
constexpr int64_t kCount = 100000;

// A matcher would take long for so many.
void ExpectAllAre(absl::Span<const float> values, float due) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != due) {
      ADD_FAILURE() << "element " << i << " is " << values[i] << ", not "
                    << due;
      return;
    }
  }
}

GroupMemory AllocateOr(Communicator& rank, int64_t bytes) {
  auto memory = rank.Allocate(bytes);
  LOCKSTEP_EXPECT_OK(memory);
  return memory.ok() ? *std::move(memory) : GroupMemory();
}

// Sets all elements of this rank to its number plus 1, adds them up over the
// ranks, and expects the sum.
void ExpectSum(Communicator& rank, absl::Span<float> in,
               absl::Span<float> out) {
  const auto own = static_cast<float>(rank.rank() + 1);
  std::fill(in.begin(), in.end(), own);
  LOCKSTEP_ASSERT_OK(
      Wait(rank.AllReduce(BufferOf(in), BufferOf(out), ReduceOp::kSum)));
  const int size = rank.size();
  ExpectAllAre(out, static_cast<float>(size * (size + 1)) / 2);
  if (in.data() != out.data()) ExpectAllAre(in, own);
}

// Operations on memory of the group, on parts of it, and on memory that only
// some ranks have from the group.
void ExpectOperationsOnMemory(Communicator& rank) {
  const GroupMemory memory = AllocateOr(rank, 3 * kCount * sizeof(float));
  ASSERT_NE(memory.data(), nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0u);
  EXPECT_EQ(memory.bytes(), 3 * kCount * static_cast<int64_t>(sizeof(float)));
  const absl::Span<float> all = memory.As<float>();
  ExpectAllAre(all, 0.0F);
  const absl::Span<float> first = all.first(kCount);
  const absl::Span<float> second = all.subspan(kCount + 7, kCount);
  ExpectSum(rank, first, first);
  ExpectSum(rank, first, second);
  // Elements from each rank but the first.
  std::vector<int64_t> counts(rank.size(), kCount / rank.size());
  counts[0] = 0;
  const auto given = second.first(counts[rank.rank()]);
  const int64_t all_given = (rank.size() - 1) * (kCount / rank.size());
  std::fill(given.begin(), given.end(), 7.0F);
  LOCKSTEP_EXPECT_OK(Wait(rank.AllGatherV(
      BufferOf(given), BufferOf(first.first(all_given)), counts)));
  ExpectAllAre(first.first(all_given), 7);
  ExpectSum(rank, second.first(3), second.first(3));
  std::vector<float> own(kCount);
  ExpectSum(rank, absl::MakeSpan(own), second);
  ExpectSum(rank, first, absl::MakeSpan(own));
  const absl::Span<float> some = rank.rank() == 0 ? first : absl::MakeSpan(own);
  ExpectSum(rank, some, some);

  // The root's number.
  std::fill(first.begin(), first.end(), static_cast<float>(rank.rank()));
  const int root = rank.size() - 1;
  LOCKSTEP_EXPECT_OK(
      Wait(rank.Broadcast(BufferOf(first), BufferOf(first), root)));
  ExpectAllAre(first, static_cast<float>(root));
}

// Memory comes and goes, in any order, and its owner moves.
void ExpectMemoryToComeAndGo(Communicator& rank) {
  GroupMemory last;
  for (int i = 1; i <= 20; ++i) {
    GroupMemory memory = AllocateOr(rank, 400000 + i);
    ExpectSum(rank, memory.As<float>(), memory.As<float>());
    if (i % 3 == 0) last = std::move(memory);
  }
  ExpectAllAre(last.As<float>(), last.As<float>()[0]);
  // Memory of a group is like any other in a group that was split off.
  std::vector<int> members(rank.size());
  for (int i = 0; i < rank.size(); ++i) members[i] = rank.size() - 1 - i;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto part,
                                rank.Split("with memory", members));
  ExpectSum(*part, last.As<float>(), last.As<float>());
}

void ExpectMemoryIsRefused(Communicator& rank) {
  for (const int64_t bytes : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    EXPECT_THAT(
        rank.Allocate(bytes),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bytes=")));
  }
  CallOptions call;
  call.name = std::string(257, 'n');
  EXPECT_THAT(rank.Allocate(1, call),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name")));
  // No rank has so much. The group goes on.
  const int64_t twice_the_host =
      2 * sysconf(_SC_PHYS_PAGES) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  for (const int64_t bytes : {twice_the_host, INT64_MAX}) {
    EXPECT_THAT(rank.Allocate(bytes),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         AllOf(HasSubstr(absl::StrCat(bytes, " bytes")),
                               HasSubstr("rank 0"))));
  }
  LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
}

// Ranks that ask for different memory.
void ExpectMemoryMismatch(const MakeRanks& make) {
  const Ranks ranks = make(2);
  OnEachRank(ranks, [&](Communicator& rank) {
    CallOptions call;
    call.name = "weights";
    absl::Status status =
        rank.Allocate(rank.rank() == 0 ? 100 : 200, call).status();
    // A device may end the operation well before the ranks notice.
    while (status.ok()) status = Wait(rank.Barrier());
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("Allocate(100 bytes) for weights"),
                               HasSubstr("Allocate(200 bytes) for weights"))));
  });
}

// Memory outlives its group.
void ExpectMemoryToOutlive(const MakeRanks& make) {
  Ranks ranks = make(2);
  std::vector<GroupMemory> memories(2);
  OnEachRank(ranks, [&](Communicator& rank) {
    memories[rank.rank()] = AllocateOr(rank, 400000);
    const absl::Span<float> floats = memories[rank.rank()].As<float>();
    ExpectSum(rank, floats, floats);
  });
  LOCKSTEP_EXPECT_OK(ranks[0]->Close());
  EXPECT_THAT(ranks[0]->Allocate(1),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  ranks.clear();
  for (const GroupMemory& memory : memories) {
    ExpectAllAre(memory.As<float>(), 3.0F);
    memory.As<float>()[0] = 4;
  }
}

}  // namespace

void ExpectGroupMemory(const MakeRanks& make, bool alone) {
  for (const int size : {1, 2, 3}) {
    if (alone && size > 1) return;
    const Ranks ranks = make(size);
    OnEachRank(ranks, [](Communicator& rank) {
      ExpectOperationsOnMemory(rank);
      ExpectMemoryToComeAndGo(rank);
      ExpectMemoryIsRefused(rank);
    });
  }
  ExpectMemoryMismatch(make);
  ExpectMemoryToOutlive(make);
}

}  // namespace lockstep::internal_collective
