// Tests restarts and resizes: after any history of a job, every position of an
// epoch is counted exactly once over all ranks.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/block_shuffle.h"
#include "lockstep/sampler/continued_mixture.h"
#include "lockstep/sampler/mixture.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/native_weighted.h"
#include "lockstep/sampler/packed.h"
#include "lockstep/sampler/repeat_factor.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/state.h"
#include "lockstep/sampler/stratified.h"
#include "lockstep/sampler/torch_random.h"
#include "lockstep/sampler/torch_shuffle.h"
#include "lockstep/sampler/windowed.h"
#include "lockstep/sampler/wrapped_orders.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

CutOptions RandomCut(Random& random) {
  CutOptions cut;
  cut.batch_size = random.Integer(1, 9);
  cut.world = random.Integer(1, 6);
  cut.tail = static_cast<Tail>(random.Below(4));
  cut.layout = static_cast<Layout>(random.Below(2));
  if (random.Below(4) == 0) cut.drop_last = true;
  if (random.Below(4) == 0) {
    cut.min_last_batch = random.Integer(0, cut.batch_size + 1);
    cut.small_last_batch = static_cast<SmallLastBatch>(random.Below(3));
  }
  return cut;
}

// A job on all its ranks. It records which positions were delivered, and their
// indices.
class Job {
 public:
  Job(const std::shared_ptr<const Order>& order, const CutOptions& cut) {
    SamplerOptions options;
    options.cut = cut;
    for (options.rank = 0; options.rank < cut.world; ++options.rank) {
      ranks_.push_back(*Sampler::Create(order, options));
    }
  }

  void Start(int64_t epoch) {
    for (const auto& rank : ranks_) {
      ASSERT_THAT(rank->StartEpoch(epoch), IsOk());
    }
  }

  void Restore(const std::string& state) {
    for (const auto& rank : ranks_) {
      ASSERT_THAT(rank->RestoreState(state), IsOk());
    }
  }

  void Skip(int64_t begin, int64_t end) {
    for (const auto& rank : ranks_) {
      ASSERT_THAT(rank->Skip(begin, end), IsOk());
    }
  }

  // Takes one step on every rank. Returns false if all say that there is none.
  bool Step(std::map<int64_t, int64_t>& delivered) {
    int stepped = 0;
    for (const auto& rank : ranks_) {
      BatchIndices batch;
      const absl::StatusOr<bool> more = rank->Next(batch);
      EXPECT_THAT(more, IsOk());
      if (!*more) continue;
      ++stepped;
      for (int64_t i = 0; i < batch.samples(); ++i) {
        EXPECT_TRUE(
            delivered.emplace(batch.positions[i], batch.indices[i]).second)
            << "position " << batch.positions[i] << " came twice";
      }
    }
    EXPECT_TRUE(stepped == 0 || stepped == static_cast<int>(ranks_.size()));
    return stepped > 0;
  }

  // Returns the state, which has the same bytes on every rank.
  std::string Save() const {
    for (const auto& rank : ranks_) {
      EXPECT_EQ(rank->SaveState(), ranks_[0]->SaveState());
    }
    return ranks_[0]->SaveState();
  }

  const Sampler& rank0() const { return *ranks_[0]; }

 private:
  std::vector<std::unique_ptr<Sampler>> ranks_;
};

struct OrderCase {
  std::function<std::shared_ptr<const Order>(int64_t size)> make;
  // True if an epoch has every sample once.
  bool permutation = true;
};

WindowOptions Window(std::shared_ptr<const Order> inner) {
  WindowOptions window;
  window.inner = std::move(inner);
  window.global_batch = 12;
  window.batches = 4;
  return window;
}

// Returns i modulo 5, plus 1, for each sample i.
std::vector<int64_t> SmallNumbers(int64_t size) {
  std::vector<int64_t> numbers(size);
  for (int64_t i = 0; i < size; ++i) numbers[i] = i % 5 + 1;
  return numbers;
}

std::shared_ptr<const Order> Sequential(int64_t size) {
  return *SequentialOrder::Create(size);
}

std::shared_ptr<const Order> Torch(int64_t size) {
  TorchShuffleOptions options;
  options.size = size;
  return *TorchShuffle::Create(options);
}

std::shared_ptr<const Order> Native(int64_t size) {
  NativeShuffleOptions options;
  options.size = size;
  return *NativeShuffle::Create(options);
}

std::shared_ptr<const Order> Weighted(int64_t size, bool replacement) {
  if (size == 0) return Sequential(0);
  NativeWeightedOptions options;
  options.weights.assign(size, 1.5);
  options.num_samples = size;
  options.replacement = replacement;
  return *NativeWeighted::Create(options);
}

std::shared_ptr<const Order> Drawn(int64_t size, bool replacement) {
  if (size == 0) return Sequential(0);
  TorchRandomOptions options;
  options.size = size;
  options.replacement = replacement;
  return *TorchRandom::Create(options);
}

std::shared_ptr<const Order> Stratified(int64_t size) {
  StratifiedOptions options;
  options.labels = SmallNumbers(size);
  return *StratifiedOrder::Create(options);
}

std::shared_ptr<const Order> Mixture(int64_t size) {
  if (size == 0) return Sequential(0);
  MixtureOptions options;
  options.sources = {{size, 3}, {7, 2}};
  options.stop = MixtureStop::kNumSamples;
  options.num_samples = size;
  return *MixtureOrder::Create(options);
}

// Its weights change in the middle of epoch 5, where the chains are.
std::shared_ptr<const Order> Continued(int64_t size) {
  if (size == 0) return Sequential(0);
  ContinuedMixtureOptions options;
  options.sources = {Native(size), Sequential(7)};
  options.phases = {{0, {0.7, 0.3}}, {5 * size + size / 2 + 1, {0.2, 0.8}}};
  options.end = MixtureStop::kNumSamples;
  options.num_samples = size;
  return *ContinuedMixture::Create(options);
}

std::shared_ptr<const Order> Blocks(int64_t size) {
  BlockShuffleOptions options;
  options.size = size;
  options.chunk_size = 7;
  options.open_chunks = 3;
  return *BlockShuffle::Create(options);
}

std::shared_ptr<const Order> Repeated(int64_t size) {
  RepeatOptions options;
  options.keep = size;
  return size == 0 ? Sequential(0)
                   : *RepeatedOrder::Create(Native(size), options);
}

std::shared_ptr<const Order> Grouped(int64_t size) {
  return *GroupedOrder::Create({Window(Native(size)), SmallNumbers(size)});
}

std::shared_ptr<const Order> Buckets(int64_t size) {
  return *LengthBuckets::Create({Window(Torch(size)), SmallNumbers(size)});
}

std::shared_ptr<const Order> Budget(int64_t size) {
  TokenBudgetOptions options;
  options.window = Window(Native(size));
  options.lengths = SmallNumbers(size);
  options.max_tokens = 17;
  options.world = 3;
  return *TokenBudget::Create(options);
}

std::shared_ptr<const Order> Packed(int64_t size) {
  return *PackedOrder::Create(
      {Window(Native(size)), SmallNumbers(size), /*row_length=*/6});
}

std::shared_ptr<const Order> TorchPart(int64_t size) {
  TorchSubsetOptions options;
  options.size = size;
  for (int64_t i = size; i > 0; --i) options.indices.push_back(i - 1);
  return *TorchSubset::Create(options);
}

std::shared_ptr<const Order> TorchByWeight(int64_t size) {
  if (size < 2) return Sequential(size);
  TorchWeightedOptions options;
  options.weights.assign(size, 2.5);
  options.num_samples = size;
  return *TorchWeighted::Create(options);
}

std::shared_ptr<const Order> Part(int64_t size) {
  std::vector<int64_t> indices;
  for (int64_t i = size; i > 0; --i) indices.push_back(i - 1);
  return *SubsetOrder::Create(Native(size), std::move(indices), size);
}

// These factors give every epoch the length of the dataset, which the tests
// need.
std::shared_ptr<const Order> RepeatFactors(int64_t size) {
  RepeatFactorOptions options;
  for (int64_t i = 0; i < size; ++i) {
    options.factors.push_back(i % 2 == 0 && i + 1 < size ? 2 : i % 2 == 0);
  }
  return *RepeatFactorOrder::Create(options);
}

std::shared_ptr<const Order> Custom(int64_t size) {
  return *CustomOrder::CreateBatches(
      {"custom", size},
      [size](int64_t) -> absl::StatusOr<std::vector<std::vector<int64_t>>> {
        std::vector<std::vector<int64_t>> batches;
        for (int64_t i = 0; i < size; ++i) {
          if (i % 10 == 0) batches.emplace_back();
          batches.back().push_back(i);
        }
        return batches;
      });
}

const std::map<std::string, OrderCase>& Orders() {
  static const auto* const orders = new std::map<std::string, OrderCase>{
      {"blocks", {Blocks}},
      {"buckets", {Buckets}},
      {"budget", {Budget}},
      {"continued_mixture", {Continued, false}},
      {"custom", {Custom}},
      {"grouped", {Grouped}},
      {"mixture", {Mixture, false}},
      {"native", {Native}},
      {"packed", {Packed}},
      {"repeat_factors", {RepeatFactors, false}},
      {"repeated", {Repeated, false}},
      {"sequential", {Sequential}},
      {"stratified", {Stratified}},
      {"subset", {Part}},
      {"torch", {Torch}},
      {"torch_by_weight", {TorchByWeight, false}},
      {"torch_drawn", {[](int64_t size) { return Drawn(size, true); }, false}},
      {"torch_part", {TorchPart}},
      {"torch_random", {[](int64_t size) { return Drawn(size, false); }}},
      {"weighted", {[](int64_t size) { return Weighted(size, true); }, false}},
      {"weighted_once", {[](int64_t size) { return Weighted(size, false); }}},
  };
  return *orders;
}

std::vector<std::string> OrderNames() {
  std::vector<std::string> names;
  for (const auto& [name, order_case] : Orders()) names.push_back(name);
  return names;
}

class Resume : public testing::TestWithParam<std::string> {};

TEST_P(Resume, ChainsAccountForEveryPositionOnce) {
  Random random(RandomKey(1, 0, 0));
  const OrderCase& order_case = Orders().at(GetParam());
  for (int chain = 0; chain < 600; ++chain) {
    const int64_t size = random.Integer(0, 400);
    const auto order = order_case.make(size);
    std::map<int64_t, int64_t> delivered;
    int64_t dropped = 0, skipped = 0;
    std::string state;
    const int64_t lives = random.Integer(1, 21);
    for (int64_t life = 0; life < lives; ++life) {
      const bool last = life + 1 == lives;
      CutOptions cut = RandomCut(random);
      if (order->NeedsBlockedLayout()) cut.layout = Layout::kBlocked;
      // No larger minimum fits into the budget.
      if (GetParam() == "budget" && cut.min_last_batch > 3) {
        cut.min_last_batch = 3;
      }
      Job job(order, cut);
      if (state.empty()) {
        job.Start(5);
      } else {
        job.Restore(state);
      }
      const int64_t position = job.rank0().progress().position;
      if (random.Below(8) == 0 && position < size) {
        const int64_t begin = random.Integer(position, size);
        job.Skip(begin, random.Integer(begin + 1, size + 1));
      }
      for (int64_t steps = last ? size + 1 : random.Integer(0, 6);
           steps > 0 && job.Step(delivered);) {
        --steps;
      }
      dropped += job.rank0().stats().dropped;
      skipped += job.rank0().stats().skipped;
      state = job.Save();
      if (last) {
        ASSERT_EQ(job.rank0().progress().position, size);
      }
    }
    ASSERT_EQ(static_cast<int64_t>(delivered.size()) + dropped + skipped, size)
        << chain;
    if (!order_case.permutation) continue;
    // Each sample comes once, and all come if none was dropped.
    std::vector<int64_t> indices;
    for (const auto& [position, index] : delivered) indices.push_back(index);
    std::sort(indices.begin(), indices.end());
    ASSERT_EQ(std::unique(indices.begin(), indices.end()), indices.end());
    if (dropped + skipped == 0 && size > 0) {
      ASSERT_EQ(indices.front(), 0);
      ASSERT_EQ(indices.back(), size - 1);
    }
  }
}

class Resize : public testing::TestWithParam<std::string> {};

// If the global batch stays the same, every global batch has the same samples
// as without a resize.
TEST_P(Resize, KeepsGlobalBatches) {
  const auto order = Orders().at(GetParam()).make(1000);
  auto global_batches = [&order](const std::vector<int64_t>& worlds) {
    std::vector<std::vector<int64_t>> batches;
    std::string state;
    for (size_t life = 0; life < worlds.size(); ++life) {
      CutOptions cut;
      cut.world = worlds[life];
      cut.batch_size = 24 / cut.world;
      cut.tail = Tail::kUneven;
      if (order->NeedsBlockedLayout()) cut.layout = Layout::kBlocked;
      Job job(order, cut);
      if (life == 0) {
        job.Start(2);
      } else {
        job.Restore(state);
      }
      for (int step = 0; step < 10 || life + 1 == worlds.size(); ++step) {
        std::map<int64_t, int64_t> delivered;
        if (!job.Step(delivered)) break;
        batches.emplace_back();
        for (const auto& [position, index] : delivered) {
          batches.back().push_back(index);
        }
      }
      state = job.Save();
    }
    return batches;
  };
  const auto expected = global_batches({1});
  // A packed row has two samples.
  EXPECT_GE(expected.size(), order->packing() ? 21u : 42u);
  EXPECT_EQ(global_batches({2, 3, 4, 8, 24}), expected);
  EXPECT_EQ(global_batches({12, 1, 6}), expected);
}

// A token budget belongs to a rank, so with more ranks its global batches are
// larger.
std::vector<std::string> NamesButBudget() {
  std::vector<std::string> names = OrderNames();
  names.erase(std::find(names.begin(), names.end(), "budget"));
  return names;
}

INSTANTIATE_TEST_SUITE_P(Orders, Resume, testing::ValuesIn(OrderNames()),
                         [](const auto& test) { return test.param; });
INSTANTIATE_TEST_SUITE_P(Orders, Resize, testing::ValuesIn(NamesButBudget()),
                         [](const auto& test) { return test.param; });

TEST(Restore, RefusesAnotherStreamUnlessAllowed) {
  CutOptions cut;
  Job job(Native(100), cut);
  job.Start(0);
  const std::string state = job.Save();
  SamplerOptions options;
  auto other = Sampler::Create(Native(50), options);
  EXPECT_THAT((*other)->RestoreState(state),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("differs in 'size'")));
  LOCKSTEP_EXPECT_OK((*other)->RestoreState(state, {{"size"}}));
  auto torch = Sampler::Create(Torch(100), options);
  EXPECT_THAT((*torch)->RestoreState(state),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("differs in 'order'")));
}

TEST(Restore, OfAnyBatchOfTheEpoch) {
  SamplerOptions options;
  options.cut.batch_size = 7;
  auto sampler = *Sampler::Create(Native(100), options);
  LOCKSTEP_ASSERT_OK(sampler->StartEpoch(1));
  std::vector<std::string> states;
  std::vector<std::vector<int64_t>> batches;
  BatchIndices batch;
  while (*sampler->Next(batch)) {
    batches.emplace_back(batch.indices.begin(), batch.indices.end());
    states.push_back(sampler->SaveState(batch.progress));
  }
  for (size_t i = 0; i + 1 < states.size(); ++i) {
    LOCKSTEP_ASSERT_OK(sampler->RestoreState(states[i]));
    EXPECT_THAT(sampler->Next(batch), IsOkAndHolds(true));
    EXPECT_THAT(batch.indices, testing::ElementsAreArray(batches[i + 1]));
    EXPECT_EQ(batch.step, static_cast<int64_t>(i) + 1);
  }
}

TEST(Restore, OfAStateWithoutBytes) {
  SamplerOptions options;
  options.cut.batch_size = 7;
  auto sampler = *Sampler::Create(Native(100), options);
  SamplerState state;
  state.progress = {3, 14, 2, 40};
  LOCKSTEP_ASSERT_OK(state.skip.Add(20, 30));
  EXPECT_THAT(sampler->RestoreState(state),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("differs in 'order'")));
  state.order_digests = OrderDigests(sampler->order().Describe());
  LOCKSTEP_ASSERT_OK(sampler->RestoreState(state));
  EXPECT_EQ(sampler->SaveState(), EncodeState(state));
  EXPECT_THAT(sampler->StepsLeftFrom(state), IsOkAndHolds(11));
  EXPECT_THAT(sampler->StepsLeft(), IsOkAndHolds(11));
  state.progress.position = 101;
  EXPECT_THAT(sampler->RestoreState(state),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("position 101")));
  EXPECT_EQ(sampler->progress().position, 14);
}

}  // namespace
}  // namespace lockstep
