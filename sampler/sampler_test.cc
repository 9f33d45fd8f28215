#include "lockstep/sampler/sampler.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/torch_shuffle.h"
#include "lockstep/sampler/windowed.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Batches = std::vector<std::vector<int64_t>>;

std::shared_ptr<const Order> Torch(int64_t size, uint64_t seed = 0) {
  TorchShuffleOptions options;
  options.size = size;
  options.seed = seed;
  return *TorchShuffle::Create(options);
}

std::shared_ptr<const Order> Sequential(int64_t size) {
  return *SequentialOrder::Create(size);
}

SamplerOptions Options(int64_t batch_size, int64_t world, int64_t rank) {
  SamplerOptions options;
  options.cut.batch_size = batch_size;
  options.cut.world = world;
  options.rank = rank;
  return options;
}

// Returns the batches of an epoch, padding included.
Batches EpochOf(const std::shared_ptr<const Order>& order,
                const SamplerOptions& options, int64_t epoch = 0) {
  Batches batches;
  auto sampler = Sampler::Create(order, options);
  EXPECT_THAT(sampler, IsOk());
  EXPECT_THAT((*sampler)->StartEpoch(epoch), IsOk());
  const int64_t steps = *(*sampler)->StepsLeft();
  const std::string start = (*sampler)->SaveState();
  BatchIndices batch;
  while (*(*sampler)->Next(batch)) {
    EXPECT_EQ(batch.step, static_cast<int64_t>(batches.size()));
    EXPECT_EQ(batch.epoch, epoch);
    batches.emplace_back(batch.indices.begin(), batch.indices.end());
  }
  EXPECT_EQ(steps, static_cast<int64_t>(batches.size()));
  // The result does not depend on where the sampler is.
  EXPECT_THAT((*sampler)->StepsLeftFrom(start), IsOkAndHolds(steps));
  EXPECT_THAT((*sampler)->StepsLeft(), IsOkAndHolds(0));
  return batches;
}

std::vector<int64_t> IndicesOf(const std::shared_ptr<const Order>& order,
                               const SamplerOptions& options,
                               int64_t epoch = 0) {
  std::vector<int64_t> indices;
  for (const auto& batch : EpochOf(order, options, epoch)) {
    indices.insert(indices.end(), batch.begin(), batch.end());
  }
  return indices;
}

// The goldens were confirmed on PyTorch 1.13.0 and 2.14.1.
TEST(DistributedSampler, Goldens) {
  auto rank = [](int64_t rank, int64_t epoch) {
    return IndicesOf(Torch(10), Options(4, 3, rank), epoch);
  };
  EXPECT_THAT(rank(0, 0), ElementsAre(4, 5, 0, 2));
  EXPECT_THAT(rank(1, 0), ElementsAre(1, 3, 8, 4));
  EXPECT_THAT(rank(2, 0), ElementsAre(7, 9, 6, 1));
  EXPECT_THAT(rank(0, 1), ElementsAre(5, 2, 9, 4));
  EXPECT_THAT(rank(1, 1), ElementsAre(6, 0, 3, 5));
  EXPECT_THAT(rank(2, 1), ElementsAre(1, 8, 7, 6));

  SamplerOptions options = Options(1, 4, 0);
  EXPECT_THAT(IndicesOf(Torch(11), options), ElementsAre(10, 5, 9));
  options.rank = 3;
  EXPECT_THAT(IndicesOf(Torch(11), options), ElementsAre(3, 1, 10));
  options.cut.tail = Tail::kDrop;
  EXPECT_THAT(IndicesOf(Torch(11), options), ElementsAre(3, 1));
}

// Seven samples make one batch of 4 on each of two ranks, because
// BatchSampler's drop_last also counts the padding.
TEST(DistributedSampler, PaddingFillsABatch) {
  SamplerOptions options = Options(4, 2, 0);
  options.cut.drop_last = true;
  EXPECT_THAT(EpochOf(Torch(7), options), ElementsAre(ElementsAre(4, 5, 2, 1)));
  EXPECT_THAT(EpochOf(Torch(6), options), IsEmpty());
  options.rank = 1;
  EXPECT_THAT(EpochOf(Torch(7), options), ElementsAre(ElementsAre(0, 3, 6, 4)));
}

TEST(DistributedSampler, MoreRanksThanSamples) {
  const int64_t expected[] = {2, 0, 1, 2, 0, 1, 2, 0};
  for (int64_t rank = 0; rank < 8; ++rank) {
    SamplerOptions options = Options(1, 8, rank);
    EXPECT_THAT(IndicesOf(Torch(3), options), ElementsAre(expected[rank]));
    options.cut.tail = Tail::kDrop;
    EXPECT_THAT(IndicesOf(Torch(3), options), IsEmpty());
  }
}

TEST(DistributedSampler, EmptyDatasetIsAnEmptyEpoch) {
  EXPECT_THAT(EpochOf(Torch(0), Options(4, 2, 1)), IsEmpty());
  EXPECT_THAT(EpochOf(Sequential(0), Options(4, 2, 1)), IsEmpty());
}

// Example 000: 25 samples whose values are their index plus one. The expected
// values here are the indices.
TEST(Seed000, TwoRanksShuffled) {
  EXPECT_THAT(
      EpochOf(Torch(25), Options(4, 2, 0)),
      ElementsAre(ElementsAre(19, 6, 5, 11), ElementsAre(14, 21, 15, 22),
                  ElementsAre(13, 7, 3, 20), ElementsAre(0)));
  EXPECT_THAT(EpochOf(Torch(25), Options(4, 2, 1)),
              ElementsAre(ElementsAre(16, 17, 24, 8), ElementsAre(12, 2, 1, 10),
                          ElementsAre(9, 18, 4, 23), ElementsAre(19)));
}

TEST(Seed000, ThreeRanksInOrder) {
  EXPECT_THAT(EpochOf(Sequential(25), Options(4, 3, 0)),
              ElementsAre(ElementsAre(0, 3, 6, 9), ElementsAre(12, 15, 18, 21),
                          ElementsAre(24)));
  EXPECT_THAT(EpochOf(Sequential(25), Options(4, 3, 1)),
              ElementsAre(ElementsAre(1, 4, 7, 10), ElementsAre(13, 16, 19, 22),
                          ElementsAre(0)));
  EXPECT_THAT(EpochOf(Sequential(25), Options(4, 3, 2)),
              ElementsAre(ElementsAre(2, 5, 8, 11), ElementsAre(14, 17, 20, 23),
                          ElementsAre(1)));
}

// Example 001, cases 1 to 7, on two ranks with batches of 4.
TEST(Seed001, Cases) {
  // 1: without a distributed sampler, so every rank reads the whole dataset.
  EXPECT_THAT(EpochOf(Sequential(8), Options(4, 1, 0)),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
  // 2: the same epoch again, given by the same number; 3: the next one.
  EXPECT_THAT(EpochOf(Torch(8), Options(4, 2, 0)),
              ElementsAre(ElementsAre(4, 7, 2, 1)));
  EXPECT_THAT(EpochOf(Torch(8), Options(4, 2, 1)),
              ElementsAre(ElementsAre(0, 3, 5, 6)));
  EXPECT_THAT(EpochOf(Torch(8), Options(4, 2, 0), 1),
              ElementsAre(ElementsAre(5, 2, 7, 1)));
  EXPECT_THAT(EpochOf(Torch(8), Options(4, 2, 1), 1),
              ElementsAre(ElementsAre(4, 6, 3, 0)));
  // 4
  EXPECT_THAT(EpochOf(Torch(6), Options(4, 2, 0)),
              ElementsAre(ElementsAre(2, 3, 1)));
  EXPECT_THAT(EpochOf(Torch(6), Options(4, 2, 1)),
              ElementsAre(ElementsAre(5, 0, 4)));
  // 5: padded by the first sample of the epoch's order.
  EXPECT_THAT(EpochOf(Torch(5), Options(4, 2, 0)),
              ElementsAre(ElementsAre(4, 1, 2)));
  EXPECT_THAT(EpochOf(Torch(5), Options(4, 2, 1)),
              ElementsAre(ElementsAre(0, 3, 4)));
  EXPECT_THAT(EpochOf(Torch(5), Options(4, 2, 0), 1),
              ElementsAre(ElementsAre(0, 2, 1)));
  EXPECT_THAT(EpochOf(Torch(5), Options(4, 2, 1), 1),
              ElementsAre(ElementsAre(4, 3, 0)));
  // 6: the last batch has one sample; 7: drop_last prevents it.
  SamplerOptions options = Options(4, 2, 0);
  EXPECT_THAT(EpochOf(Torch(10), options),
              ElementsAre(ElementsAre(4, 7, 3, 0), ElementsAre(6)));
  options.cut.drop_last = true;
  EXPECT_THAT(EpochOf(Torch(10), options),
              ElementsAre(ElementsAre(4, 7, 3, 0)));
  options.rank = 1;
  EXPECT_THAT(EpochOf(Torch(10), options),
              ElementsAre(ElementsAre(1, 5, 9, 8)));
  EXPECT_THAT(EpochOf(Torch(6), options), IsEmpty());
}

// Example 002: one, two and three samples on two ranks, with one sample per
// batch.
TEST(Seed002, Sizes) {
  EXPECT_THAT(IndicesOf(Torch(1), Options(1, 2, 0)), ElementsAre(0));
  EXPECT_THAT(IndicesOf(Torch(1), Options(1, 2, 1)), ElementsAre(0));
  EXPECT_THAT(IndicesOf(Torch(2), Options(1, 2, 0)), ElementsAre(0));
  EXPECT_THAT(IndicesOf(Torch(2), Options(1, 2, 1)), ElementsAre(1));
  EXPECT_THAT(IndicesOf(Torch(3), Options(1, 2, 0)), ElementsAre(2, 1));
  EXPECT_THAT(IndicesOf(Torch(3), Options(1, 2, 1)), ElementsAre(0, 2));
}

// Example 004: the examples in the documentation of BatchSampler.
TEST(Seed004, BatchSampler) {
  SamplerOptions options = Options(3, 1, 0);
  EXPECT_THAT(EpochOf(Sequential(10), options),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5),
                          ElementsAre(6, 7, 8), ElementsAre(9)));
  options.cut.drop_last = true;
  EXPECT_THAT(EpochOf(Sequential(10), options),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5),
                          ElementsAre(6, 7, 8)));
}

struct Evaluation {
  std::vector<int64_t> rows, valid;
};

// Returns what two ranks see of 21 samples in batches of 4, summed.
Evaluation Evaluate(Tail tail) {
  Evaluation total{{0, 0}, {0, 0}};
  for (int64_t rank = 0; rank < 2; ++rank) {
    SamplerOptions options = Options(4, 2, rank);
    options.cut.tail = tail;
    auto sampler = Sampler::Create(Sequential(21), options);
    EXPECT_THAT((*sampler)->StartEpoch(0), IsOk());
    BatchIndices batch;
    int64_t steps = 0;
    for (; *(*sampler)->Next(batch); ++steps) {
      total.rows[rank] += static_cast<int64_t>(batch.indices.size());
      total.valid[rank] += batch.valid;
    }
    EXPECT_EQ(steps, 3);
  }
  return total;
}

TEST(Tails, TwentyOneSamplesOnTwoRanks) {
  EXPECT_THAT(Evaluate(Tail::kPad).rows, ElementsAre(11, 11));
  EXPECT_THAT(Evaluate(Tail::kPad).valid, ElementsAre(11, 10));
  EXPECT_THAT(Evaluate(Tail::kMask).rows, ElementsAre(12, 12));
  EXPECT_THAT(Evaluate(Tail::kMask).valid, ElementsAre(11, 10));
  EXPECT_THAT(Evaluate(Tail::kUneven).rows, ElementsAre(11, 10));
  EXPECT_THAT(Evaluate(Tail::kUneven).valid, ElementsAre(11, 10));
  EXPECT_THAT(Evaluate(Tail::kDrop).rows, ElementsAre(10, 10));
}

TEST(Sampler, MaskedRowsAreMinusOne) {
  SamplerOptions options = Options(4, 2, 1);
  options.cut.tail = Tail::kMask;
  EXPECT_THAT(EpochOf(Sequential(10), options),
              ElementsAre(ElementsAre(1, 3, 5, 7), ElementsAre(9, -1, -1, -1)));
}

TEST(Sampler, BlockedLayout) {
  SamplerOptions options = Options(4, 2, 1);
  options.cut.layout = Layout::kBlocked;
  EXPECT_THAT(EpochOf(Sequential(13), options),
              ElementsAre(ElementsAre(4, 5, 6, 7), ElementsAre(11, 12, 0)));
  options.cut.tail = Tail::kUneven;
  EXPECT_THAT(EpochOf(Sequential(13), options),
              ElementsAre(ElementsAre(4, 5, 6, 7), ElementsAre(11, 12)));
}

TEST(Sampler, PaddingHasPositionsBeyondTheEnd) {
  auto sampler = Sampler::Create(Torch(5), Options(4, 2, 1));
  LOCKSTEP_ASSERT_OK((*sampler)->StartEpoch(0));
  BatchIndices batch;
  EXPECT_THAT((*sampler)->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.positions, ElementsAre(1, 3, 5));
  EXPECT_THAT(batch.indices, ElementsAre(0, 3, 4));
  EXPECT_EQ(batch.valid, 2);
  EXPECT_THAT((*sampler)->Next(batch), IsOkAndHolds(false));
  EXPECT_THAT((*sampler)->Next(batch), IsOkAndHolds(false));
  EXPECT_EQ((*sampler)->stats().delivered, 5);
  EXPECT_EQ((*sampler)->stats().padded, 1);
}

// Groups of a few samples make segments that are shorter than a step.
TEST(Sampler, EachRowHasAPositionOfItsOwn) {
  int64_t padding = 0;
  for (const Tail tail :
       {Tail::kPad, Tail::kMask, Tail::kUneven, Tail::kDrop}) {
    for (const Layout layout : {Layout::kStrided, Layout::kBlocked}) {
      for (const int world : {1, 2, 3, 8}) {
        for (const int batch_size : {1, 2, 5}) {
          for (const SmallLastBatch small :
               {SmallLastBatch::kDrop, SmallLastBatch::kSpread}) {
            GroupedOptions grouped;
            grouped.window.inner = Sequential(50);
            grouped.window.global_batch = batch_size * world;
            for (int i = 0; i < 50; ++i) grouped.groups.push_back(i % 7);
            LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto order,
                                          GroupedOrder::Create(grouped));
            SamplerOptions options = Options(batch_size, world, 0);
            options.cut.tail = tail;
            options.cut.layout = layout;
            options.cut.min_last_batch = batch_size / 2;
            options.cut.small_last_batch = small;
            std::set<int64_t> seen;
            for (options.rank = 0; options.rank < world; ++options.rank) {
              auto sampler = Sampler::Create(order, options);
              LOCKSTEP_ASSERT_OK((*sampler)->StartEpoch(0));
              BatchIndices batch;
              while (*(*sampler)->Next(batch)) {
                for (size_t row = 0; row < batch.positions.size(); ++row) {
                  const bool is_data = static_cast<int64_t>(row) < batch.valid;
                  padding += is_data ? 0 : 1;
                  EXPECT_EQ(batch.positions[row] < 50, is_data);
                  EXPECT_TRUE(seen.insert(batch.positions[row]).second)
                      << "position " << batch.positions[row] << " of rank "
                      << options.rank << " of " << world << ", batches of "
                      << batch_size;
                }
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(padding, 500);
}

// Tensor parallel neighbours (stride 2); two pipeline stages are outermost.
TEST(Sampler, ReplicasGetIdenticalRows) {
  SamplerOptions options = Options(3, 2, 0);
  options.replicas = 4;
  options.data_stride = 2;
  std::vector<Batches> ranks;
  for (options.rank = 0; options.rank < 8; ++options.rank) {
    ranks.push_back(EpochOf(Torch(20), options));
  }
  for (const int same : {1, 4, 5}) EXPECT_EQ(ranks[0], ranks[same]);
  for (const int same : {3, 6, 7}) EXPECT_EQ(ranks[2], ranks[same]);
  EXPECT_EQ(ranks[0], EpochOf(Torch(20), Options(3, 2, 0)));
  EXPECT_EQ(ranks[2], EpochOf(Torch(20), Options(3, 2, 1)));
}

TEST(Sampler, SkipsPositions) {
  auto sampler = Sampler::Create(Sequential(20), Options(2, 2, 0));
  LOCKSTEP_ASSERT_OK((*sampler)->StartEpoch(0));
  BatchIndices batch;
  EXPECT_THAT((*sampler)->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT((*sampler)->Skip(3, 5),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("[4, 20)")));
  EXPECT_THAT((*sampler)->Skip(4, 21), StatusIs(absl::StatusCode::kOutOfRange));
  LOCKSTEP_ASSERT_OK((*sampler)->Skip(4, 8));
  LOCKSTEP_ASSERT_OK((*sampler)->Skip(11, 18));
  EXPECT_THAT((*sampler)->StepsLeft(), IsOkAndHolds(2));
  EXPECT_THAT((*sampler)->StepsLeftFrom((*sampler)->SaveState()),
              IsOkAndHolds(2));
  EXPECT_THAT((*sampler)->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.indices, ElementsAre(8, 10));
  EXPECT_THAT(batch.positions, ElementsAre(8, 10));
  EXPECT_THAT((*sampler)->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.indices, ElementsAre(19));
  EXPECT_THAT((*sampler)->Next(batch), IsOkAndHolds(false));
  EXPECT_EQ((*sampler)->stats().delivered, 9);
  EXPECT_EQ((*sampler)->stats().skipped, 11);
  EXPECT_EQ((*sampler)->stats().padded, 1);
}

// The batches have reached the range to skip, but not passed it, so more
// positions can join it.
TEST(Sampler, RangesAheadCanGrow) {
  auto sampler = *Sampler::Create(Sequential(20), Options(4, 2, 0));
  LOCKSTEP_ASSERT_OK(sampler->StartEpoch(0));
  LOCKSTEP_ASSERT_OK(sampler->Skip(8, 12));
  BatchIndices batch;
  EXPECT_THAT(sampler->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(sampler->progress().position, 8);
  LOCKSTEP_ASSERT_OK(sampler->Skip(10, 16));
  EXPECT_THAT(sampler->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.indices, ElementsAre(16, 18));
}

TEST(Sampler, StartEpochForgetsWhatWasSkippedAndCounted) {
  auto sampler = *Sampler::Create(Sequential(8), Options(2, 1, 0));
  LOCKSTEP_ASSERT_OK(sampler->StartEpoch(0));
  LOCKSTEP_ASSERT_OK(sampler->Skip(0, 3));
  BatchIndices batch;
  EXPECT_THAT(sampler->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.indices, ElementsAre(3, 4));
  LOCKSTEP_ASSERT_OK(sampler->StartEpoch(1));
  EXPECT_EQ(sampler->stats().delivered, 0);
  EXPECT_EQ(sampler->stats().skipped, 0);
  EXPECT_THAT(sampler->StepsLeft(), IsOkAndHolds(4));
  EXPECT_THAT(sampler->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.indices, ElementsAre(0, 1));
}

// Steps that are passed count as those that are read.
TEST(Sampler, PassStepsCountsLikeNext) {
  for (const Tail tail :
       {Tail::kPad, Tail::kDrop, Tail::kUneven, Tail::kMask}) {
    for (const int64_t min_last_batch : {0, 2}) {
      for (const int64_t size : {1, 11, 12, 13, 59, 60, 61}) {
        SamplerOptions options;
        options.cut.batch_size = 4;
        options.cut.world = 3;
        options.cut.tail = tail;
        options.cut.min_last_batch = min_last_batch;
        const auto read =
            *Sampler::Create(*SequentialOrder::Create(size), options);
        const auto passed =
            *Sampler::Create(*SequentialOrder::Create(size), options);
        LOCKSTEP_ASSERT_OK(read->StartEpoch(2));
        LOCKSTEP_ASSERT_OK(passed->StartEpoch(2));
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const int64_t steps, passed->StepsLeft());
        LOCKSTEP_ASSERT_OK(passed->PassSteps(steps));
        BatchIndices batch;
        for (int64_t i = 0; i < steps; ++i) {
          ASSERT_THAT(read->Next(batch), IsOkAndHolds(true));
        }
        EXPECT_EQ(passed->SaveState(), read->SaveState());
        // Both count what is dropped at the end when the epoch ends.
        ASSERT_THAT(read->Next(batch), IsOkAndHolds(false));
        ASSERT_THAT(passed->Next(batch), IsOkAndHolds(false));
        EXPECT_EQ(passed->SaveState(), read->SaveState());
        EXPECT_EQ(passed->stats().delivered, read->stats().delivered);
        EXPECT_EQ(passed->stats().dropped, read->stats().dropped);
        EXPECT_EQ(passed->stats().padded, read->stats().padded);
      }
    }
  }
}

TEST(Sampler, ErrorsUsePyTorchsWords) {
  EXPECT_THAT(Sampler::Create(Torch(10), Options(4, 3, 3)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "Invalid rank 3, rank should be in the interval [0, "
                       "2]"));
  EXPECT_THAT(Sampler::Create(Torch(10), Options(0, 3, 0)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("batch_size should be a positive integer "
                                 "value, but got batch_size=0")));
  EXPECT_THAT(Sampler::Create(nullptr, Options(1, 1, 0)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  SamplerOptions options = Options(1, 2, 0);
  options.replicas = 4;
  options.data_stride = 3;
  EXPECT_THAT(Sampler::Create(Torch(10), options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("divide replicas=4")));
}

TEST(Sampler, NeedsAnEpoch) {
  auto sampler = Sampler::Create(Torch(10), Options(1, 1, 0));
  BatchIndices batch;
  EXPECT_THAT(
      (*sampler)->Next(batch),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("StartEpoch")));
  EXPECT_THAT((*sampler)->StepsLeft(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT((*sampler)->StepsLeftFrom("what"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT((*sampler)->Skip(0, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(Sampler, JobFingerprintNamesWhatRanksDifferIn) {
  auto fingerprint = [](const SamplerOptions& options) {
    return (*Sampler::Create(Torch(10), options))->JobFingerprint();
  };
  const Fingerprint mine = fingerprint(Options(4, 2, 0));
  EXPECT_EQ(FirstDifference(mine, fingerprint(Options(4, 2, 1))), "");
  EXPECT_EQ(FirstDifference(mine, fingerprint(Options(5, 2, 0))), "batch_size");
  EXPECT_EQ(FirstDifference(mine, fingerprint(Options(4, 3, 0))), "world");
  SamplerOptions outer = Options(4, 2, 0), inner = outer;
  outer.replicas = inner.replicas = 2;
  inner.data_stride = 2;
  EXPECT_EQ(FirstDifference(fingerprint(outer), fingerprint(inner)),
            "data_stride");
}

TEST(Sampler, DataFingerprintDoesNotDependOnRanks) {
  const auto fingerprint = [](const SamplerOptions& options, int64_t size) {
    return (*Sampler::Create(Torch(size), options))->DataFingerprint();
  };
  const Fingerprint mine = fingerprint(Options(6, 2, 0), 10);
  EXPECT_EQ(FirstDifference(mine, fingerprint(Options(4, 3, 1), 10)), "");
  EXPECT_EQ(FirstDifference(mine, fingerprint(Options(6, 3, 0), 10)),
            "samples of a step");
  EXPECT_EQ(FirstDifference(mine, fingerprint(Options(6, 2, 0), 11)), "size");
  SamplerOptions other = Options(6, 2, 0);
  other.cut.tail = Tail::kUneven;
  EXPECT_EQ(FirstDifference(mine, fingerprint(other, 10)), "tail");
}

}  // namespace
}  // namespace lockstep
