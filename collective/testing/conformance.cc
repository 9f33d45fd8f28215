#include "lockstep/collective/testing/conformance.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/testing/conformance_parts.h"
#include "lockstep/collective/testing/reduction_bits.h"
#include "lockstep/collective/world.h"

namespace lockstep {
namespace {

using internal_collective::InThreads;
using internal_collective::Ranks;
using testing::HasSubstr;

constexpr int kSizes[] = {1, 2, 3, 5, 8};

void ExpectScales(Communicator& rank) {
  std::vector<float> values = {1, 2};
  CallOptions options;
  options.scale = 0.5;
  const Buffer buffer = BufferOf(absl::MakeSpan(values));
  LOCKSTEP_ASSERT_OK(
      Wait(rank.AllReduce(buffer, buffer, ReduceOp::kSum, options)));
  EXPECT_THAT(values,
              testing::ElementsAre(0.5f * rank.size(), 1.0f * rank.size()));
}

// If a later operation is done, the earlier ones are, too (seed 002).
void ExpectOrder(Communicator& rank) {
  std::vector<Work> works;
  std::vector<std::vector<float>> values(20, std::vector<float>(100, 1));
  for (auto& each : values) {
    const Buffer buffer = BufferOf(absl::MakeSpan(each));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        Work work, rank.AllReduce(buffer, buffer, ReduceOp::kSum));
    works.push_back(std::move(work));
  }
  LOCKSTEP_ASSERT_OK(works.back().Wait());
  for (size_t i = 0; i < works.size(); ++i) {
    EXPECT_TRUE(works[i].Done());
    LOCKSTEP_EXPECT_OK(works[i].status());
    EXPECT_EQ(values[i][99], rank.size());
  }
}

// Any number of messages may be on their way from one rank to another.
void ExpectMessagesInOrder(Communicator& rank) {
  const int me = rank.rank(), size = rank.size();
  const int next = (me + 1) % size, last = (me + size - 1) % size;
  std::vector<Work> works;
  std::vector<std::vector<float>> sent(20), got(20);
  for (size_t i = 0; i < sent.size(); ++i) {
    sent[i].assign(100 * i + 1, static_cast<float>(20 * me + i));
    got[i].resize(sent[i].size());
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        Work work, rank.Send(BufferOf(absl::MakeSpan(sent[i])), next));
    works.push_back(std::move(work));
  }
  for (auto& each : got) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        Work work, rank.Recv(BufferOf(absl::MakeSpan(each)), last));
    works.push_back(std::move(work));
  }
  for (const Work& work : works) LOCKSTEP_EXPECT_OK(work.Wait());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_THAT(got[i], testing::Each(static_cast<float>(20 * last + i)));
  }
}

// Only one rank makes these calls. If a refused call got a number, the ranks
// would differ.
void ExpectRefusals(Communicator& rank) {
  if (rank.rank() != 0) {
    LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
    return;
  }
  std::vector<float> four(4), other(4);
  const Buffer in = BufferOf(absl::MakeSpan(four));
  const Buffer out = BufferOf(absl::MakeSpan(other));
  const auto refused = [](const absl::StatusOr<Work>& work,
                          const std::string& text) {
    EXPECT_THAT(work,
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  Buffer wrong = out;
  wrong.count = 3;
  refused(rank.AllReduce(in, wrong, ReduceOp::kSum),
          "out should have 4 elements, as in has, but has 3");
  wrong = out;
  wrong.dtype = DType::kI32;
  refused(rank.AllReduce(in, wrong, ReduceOp::kSum), "the same dtype");
  wrong.count = -1;
  refused(rank.AllReduce(wrong, wrong, ReduceOp::kSum), "count=-1");
  wrong = out;
  wrong.data = nullptr;
  refused(rank.AllReduce(in, wrong, ReduceOp::kSum), "data=nullptr");
  refused(rank.Broadcast(in, out, rank.size()), "root should be a rank");
  refused(rank.Send(in, -1), "to should be a rank");
  refused(rank.AllGatherV(in, out, {}), "a number for each of");
  refused(rank.AllToAllV(in, std::vector<int64_t>(rank.size(), 100), out,
                         std::vector<int64_t>(rank.size(), 1)),
          "elements, the sum of");
  {
    std::vector<int64_t> gives(rank.size()), takes(rank.size());
    gives[0] = 4;
    takes[rank.size() - 1] = 4;
    if (rank.size() > 1) {
      refused(rank.AllToAllV(in, gives, out, takes),
              "what a rank gives itself");
    }
  }
  const Buffer shifted = BufferOf(absl::MakeSpan(four).subspan(1));
  refused(rank.AllReduce(BufferOf(absl::MakeSpan(four).first(3)), shifted,
                         ReduceOp::kSum),
          "overlap");
  CallOptions options;
  options.scale = 2;
  refused(rank.Barrier(options), "scale is for reductions");
  options.scale = 1e300;
  refused(rank.AllReduce(in, out, ReduceOp::kSum, options), "scale=1e+300");
  options = {};
  options.deadline = -absl::Seconds(1);
  refused(rank.Barrier(options), "deadline=-1s");
  options = CallOptions();
  options.waits_within = -absl::Seconds(2);
  refused(rank.Barrier(options), "waits_within=-2s");
  // These calls have issued nothing.
  LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
}

}  // namespace

void OnAllRanks(const Ranks& ranks,
                const std::function<void(Communicator&)>& run) {
  internal_collective::OnEachRank(ranks, run);
}

void ExpectConforms(const MakeGroup& make, const ConformanceOptions& options) {
  for (const int size : kSizes) {
    if (options.alone && size > 1) return;
    const Ranks ranks = make(size);
    OnAllRanks(ranks, [&options](Communicator& rank) {
      internal_collective::ExpectEveryDType(rank, options.reduces_all);
      ExpectScales(rank);
      ExpectOrder(rank);
      ExpectMessagesInOrder(rank);
      ExpectRefusals(rank);
    });
    internal_collective::ExpectSameBits(ranks, options.reduces_in_rank_order);
    internal_collective::ExpectShardSums(ranks, options.adds_shards);
  }
  internal_collective::ExpectGroupMemory(make, options.alone);
  internal_collective::ExpectMismatches(make, options.compares);
  internal_collective::ExpectFailures(make);
  internal_collective::ExpectSplits(make);
}

namespace {

// The worlds of a job's ranks. They outlive their groups.
// Thread-safety: thread-compatible.
class Job {
 public:
  explicit Job(int size) : worlds_(size) {
    MemoryStore store;
    InThreads(size, [&](int rank) {
      WorldOptions options;
      options.rank = rank;
      options.size = size;
      options.store = &store;
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(worlds_[rank], World::Join(options));
    });
  }
  // All ranks leave at the same time, since rank 0 waits for the others.
  ~Job() {
    InThreads(static_cast<int>(worlds_.size()),
              [this](int rank) { worlds_[rank] = nullptr; });
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Ranks MakeRanks(const GroupOptions& options) {
    Ranks ranks(worlds_.size());
    InThreads(static_cast<int>(worlds_.size()), [&](int rank) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(ranks[rank],
                                    worlds_[rank]->MakeGroup(options));
    });
    return ranks;
  }

 private:
  std::vector<std::unique_ptr<World>> worlds_;
};

}  // namespace

void ExpectConforms(const TransportFactory& transport,
                    const ConformanceOptions& options) {
  std::unique_ptr<Job> job;
  ExpectConforms(
      [&](int size) {
        job = nullptr;
        job = std::make_unique<Job>(size);
        GroupOptions group;
        group.backend = "the transport that is tested";
        group.transport = transport;
        group.slow = absl::Milliseconds(50);
        return job->MakeRanks(group);
      },
      options);
}

}  // namespace lockstep
