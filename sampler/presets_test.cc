#include "lockstep/sampler/presets.h"

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/order_conformance.h"
#include "lockstep/sampler/repeat_factor.h"
#include "lockstep/sampler/stratified.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Batches = std::vector<std::vector<int64_t>>;

Batches EpochOf(Sampler& sampler, int64_t epoch = 0) {
  EXPECT_THAT(sampler.StartEpoch(epoch), IsOk());
  Batches batches;
  BatchIndices batch;
  while (*sampler.Next(batch)) {
    batches.emplace_back(batch.indices.begin(), batch.indices.end());
  }
  return batches;
}

TEST(Presets, DistributedSampler) {
  DistributedSamplerOptions options;
  options.size = 10;
  options.num_replicas = 3;
  options.rank = 1;
  options.batch_size = 3;
  EXPECT_THAT(EpochOf(**DistributedSampler(options)),
              ElementsAre(ElementsAre(1, 3, 8), ElementsAre(4)));
  options.drop_last = true;
  EXPECT_THAT(EpochOf(**DistributedSampler(options)),
              ElementsAre(ElementsAre(1, 3, 8)));
  options.shuffle = false;
  options.drop_last = false;
  EXPECT_THAT(EpochOf(**DistributedSampler(options)),
              ElementsAre(ElementsAre(1, 4, 7), ElementsAre(0)));
  options.drop_last_batch = true;
  EXPECT_THAT(EpochOf(**DistributedSampler(options)),
              ElementsAre(ElementsAre(1, 4, 7)));
}

TEST(Presets, DistributedSamplerOverAnother) {
  DistributedSamplerOptions options;
  TorchWeightedOptions weighted;
  weighted.weights = {.1, .9, .4, .7, 3, .6};
  weighted.num_samples = 5;
  weighted.seed = 0;
  options.inner = *WeightedRandomSampler(weighted);  // 5 4 4 5 4
  options.num_replicas = 2;
  options.batch_size = 3;
  EXPECT_THAT(EpochOf(**DistributedSampler(options)),
              ElementsAre(ElementsAre(5, 4, 4)));
  options.rank = 1;
  EXPECT_THAT(EpochOf(**DistributedSampler(options)),
              ElementsAre(ElementsAre(4, 5, 5)));
  StratifiedOptions stratified;
  stratified.labels = {0, 1, 0, 1};
  options.inner = *StratifiedOrder::Create(stratified);
  LOCKSTEP_EXPECT_OK(DistributedSampler(options));
}

TEST(Presets, BatchSampler) {
  EXPECT_THAT(EpochOf(**BatchSampler(*SequentialSampler(10), 3, false)),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5),
                          ElementsAre(6, 7, 8), ElementsAre(9)));
  EXPECT_THAT(BatchSampler(*SequentialSampler(10), 0, false),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("batch_size should be a positive integer "
                                 "value, but got batch_size=0")));
}

TEST(Presets, RandomAndSubsetSamplers) {
  TorchRandomOptions random;
  random.size = 10;
  random.seed = 0;
  EXPECT_THAT(ReadEpoch(**RandomSampler(random), 0),
              ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  TorchSubsetOptions subset;
  subset.indices = {5, 6, 7, 8, 9};
  subset.size = 10;
  subset.seed = 0;
  EXPECT_THAT(ReadEpoch(**SubsetRandomSampler(subset), 0),
              ElementsAre(9, 5, 6, 8, 7));
}

// The factories of maskrcnn-benchmark.
TEST(Presets, MakeDataSampler) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(DataSampler data,
                                MakeDataSampler(10, true, Ranks{3, 1}));
  BatchDataSamplerOptions options;
  options.images_per_batch = 4;
  EXPECT_THAT(EpochOf(**MakeBatchSampler(data, options)),
              ElementsAre(ElementsAre(1, 3, 8, 4)));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(data, MakeDataSampler(10, false, std::nullopt));
  EXPECT_THAT(EpochOf(**MakeBatchSampler(data, options)),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7),
                          ElementsAre(8, 9)));
  // torch.manual_seed(0), DataLoader(range(10), shuffle=True).
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(data, MakeDataSampler(10, true, std::nullopt));
  EXPECT_THAT(ReadEpoch(*data.order, 0),
              ElementsAre(6, 7, 1, 4, 2, 0, 9, 8, 3, 5));
}

TEST(Presets, AspectGrouping) {
  BatchDataSamplerOptions options;
  options.images_per_batch = 2;
  options.aspect_grouping = {1};
  options.aspect_ratios = {0.5, 2, 0.5, 2, 0.5, 2, 0.5, 2, 0.5, 2};
  std::vector<size_t> steps;
  for (int64_t rank = 0; rank < 2; ++rank) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const DataSampler data,
                                  MakeDataSampler(10, true, Ranks{2, rank}));
    const Batches batches = EpochOf(**MakeBatchSampler(data, options));
    steps.push_back(batches.size());
    for (const auto& batch : batches) {
      for (const int64_t index : batch) EXPECT_EQ(index % 2, batch[0] % 2);
    }
  }
  EXPECT_EQ(steps[0], steps[1]);
  options.aspect_ratios.pop_back();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const DataSampler data,
                                MakeDataSampler(10, true, std::nullopt));
  EXPECT_THAT(MakeBatchSampler(data, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("walks 10 samples, but there are 9 groups")));
}

TEST(Presets, Iterations) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const DataSampler data,
                                MakeDataSampler(10, true, Ranks{2, 0}));
  BatchDataSamplerOptions options;
  options.images_per_batch = 2;  // three steps per epoch
  auto run = [&](int64_t start) {
    auto sampler = *MakeIterationBatchSampler(data, options, 8, start);
    Batches batches;
    BatchIndices batch;
    while (*sampler->Next(batch)) {
      EXPECT_EQ(batch.epoch * 3 + batch.step, sampler->iteration() - 1);
      EXPECT_EQ(batch.progress.steps_in_total, sampler->iteration());
      batches.emplace_back(batch.indices.begin(), batch.indices.end());
    }
    EXPECT_THAT(sampler->Next(batch), IsOkAndHolds(false));
    return batches;
  };
  const Batches all = run(0);
  ASSERT_THAT(all, SizeIs(8));
  for (int64_t start = 0; start <= 8; ++start) {
    EXPECT_EQ(run(start), Batches(all.begin() + start, all.end()));
  }
  EXPECT_THAT(run(100), SizeIs(0));

  auto sampler = *MakeIterationBatchSampler(data, options, 8, 4);
  auto restored = *MakeIterationBatchSampler(data, options, 8);
  LOCKSTEP_ASSERT_OK(restored->RestoreState(sampler->sampler().SaveState()));
  EXPECT_EQ(restored->iteration(), 4);
  BatchIndices batch;
  EXPECT_THAT(restored->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.indices, testing::ElementsAreArray(all[4]));
}

// Starts far into an epoch without reading it, and passes epochs without steps.
TEST(Presets, IterationsStartAnywhere) {
  NativeShuffleOptions huge;
  huge.size = 1000000000000;
  SamplerOptions options;
  options.cut.batch_size = 256;
  auto make = [&](int64_t start) {
    return *IterationSampler::Create(
        *Sampler::Create(*NativeShuffle::Create(huge), options),
        int64_t{1} << 62, start);
  };
  const auto far = make(3906250001);  // the second step of the second epoch
  BatchIndices batch;
  EXPECT_THAT(far->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(batch.epoch, 1);
  EXPECT_EQ(batch.step, 1);
  EXPECT_EQ(batch.positions[0], 256);
  RepeatFactorOptions rare;
  rare.factors = {0.05};
  const auto rarely = IterationSampler::Create(
      *Sampler::Create(*RepeatFactorOrder::Create(rare), SamplerOptions()), 20,
      7);
  LOCKSTEP_ASSERT_OK(rarely);
  int64_t steps = 0;
  while (*(*rarely)->Next(batch)) ++steps;
  EXPECT_EQ(steps, 13);
}

// If each epoch took as long as all epochs before it, this test would take
// minutes.
TEST(Presets, IterationsStartInALateEpoch) {
  TorchRandomOptions random;
  random.size = 1000;
  const auto order = *TorchRandom::Create(random);
  SamplerOptions options;
  options.cut.batch_size = 100;
  constexpr int64_t kEpoch = 30000;
  const auto late = *IterationSampler::Create(*Sampler::Create(order, options),
                                              int64_t{1} << 62, kEpoch * 10);
  BatchIndices batch;
  EXPECT_THAT(late->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(batch.epoch, kEpoch);
  auto there = *Sampler::Create(order, options);
  LOCKSTEP_ASSERT_OK(there->StartEpoch(kEpoch));
  BatchIndices same;
  EXPECT_THAT(there->Next(same), IsOkAndHolds(true));
  EXPECT_EQ(batch.indices, same.indices);
}

TEST(Presets, IterationsNeedSteps) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const DataSampler data,
                                MakeDataSampler(0, false, std::nullopt));
  EXPECT_THAT(MakeIterationBatchSampler(data, {}, 5, 0),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("had no step")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const DataSampler one,
                                MakeDataSampler(1, false, std::nullopt));
  EXPECT_THAT(MakeIterationBatchSampler(one, {}, -5, 0),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// These values were made by testdata/generate/random_split.py on PyTorch 1.13.
TEST(Presets, RandomSplit) {
  EXPECT_THAT(RandomSplit({7, 3}, 42),
              IsOkAndHolds(ElementsAre(ElementsAre(2, 6, 1, 8, 4, 5, 0),
                                       ElementsAre(9, 3, 7))));
  EXPECT_THAT(SplitLengths(10, {0.3, 0.3, 0.4}),
              IsOkAndHolds(ElementsAre(3, 3, 4)));
  EXPECT_THAT(SplitLengths(11, {0.3, 0.3, 0.4}),
              IsOkAndHolds(ElementsAre(4, 3, 4)));
  EXPECT_THAT(SplitLengths(10, {0.5, 0.4}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("Sum of input lengths does not equal the "
                                 "length of the input dataset!")));
  EXPECT_THAT(SplitLengths(10, {1.5, -0.5}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("Fraction at index 0 is not between 0 and "
                                 "1")));
  for (const int64_t part : {int64_t{-3}, int64_t{1} << 62}) {
    EXPECT_THAT(RandomSplit({int64_t{1} << 62, part}, 42),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(SplitLengths(int64_t{1} << 62, {1, 1, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lockstep
