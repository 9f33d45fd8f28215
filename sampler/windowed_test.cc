#include "lockstep/sampler/windowed.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/order_conformance.h"
#include "lockstep/sampler/padding_waste.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

WindowOptions Window(int64_t size, int64_t global_batch, int64_t batches) {
  NativeShuffleOptions shuffle;
  shuffle.size = size;
  WindowOptions window;
  window.inner = *NativeShuffle::Create(shuffle);
  window.global_batch = global_batch;
  window.batches = batches;
  window.seed = 3;
  return window;
}

std::vector<int64_t> LogNormalLengths(int64_t size) {
  Random random(5);
  std::vector<int64_t> lengths(size);
  for (int64_t& length : lengths) {
    length = 1 + static_cast<int64_t>(std::exp(random.Normal(5, 0.8)));
  }
  return lengths;
}

// Returns all batches of all ranks, step by step, and checks that the numbers
// of steps are equal.
std::vector<std::vector<std::vector<int64_t>>> StepsOf(
    const std::shared_ptr<const Order>& order, SamplerOptions options) {
  std::vector<std::vector<std::vector<int64_t>>> steps;
  for (options.rank = 0; options.rank < options.cut.world; ++options.rank) {
    const auto sampler = *Sampler::Create(order, options);
    EXPECT_THAT(sampler->StartEpoch(1), IsOk());
    const int64_t expected = *sampler->StepsLeft();
    BatchIndices batch;
    int64_t step = 0;
    for (; *sampler->Next(batch); ++step) {
      if (options.rank == 0) steps.emplace_back();
      steps.at(step).emplace_back(batch.indices.begin(), batch.indices.end());
    }
    EXPECT_EQ(step, expected);
    EXPECT_EQ(step, static_cast<int64_t>(steps.size()));
  }
  return steps;
}

template <typename Options>
void ExpectPermutation(const Options& order, int64_t size) {
  std::vector<int64_t> indices = ReadEpoch(*order, 1);
  std::sort(indices.begin(), indices.end());
  ASSERT_EQ(static_cast<int64_t>(indices.size()), size);
  for (int64_t i = 0; i < size; ++i) ASSERT_EQ(indices[i], i);
}

TEST(GroupedOrder, BatchesNeverMixGroupsOnAnyRank) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    const int64_t size = random.Integer(0, 500);
    GroupedOptions grouped;
    grouped.window = Window(size, random.Integer(1, 20), random.Integer(1, 10));
    for (int64_t i = 0; i < size; ++i) {
      grouped.groups.push_back(random.Integer(0, 4) - 2);
    }
    const std::vector<int64_t> groups = grouped.groups;
    const auto order = *GroupedOrder::Create(std::move(grouped));
    ExpectPermutation(order, size);
    SamplerOptions options;
    options.cut.batch_size = random.Integer(1, 8);
    options.cut.world = random.Integer(1, 5);
    for (const auto& step : StepsOf(order, options)) {
      std::set<int64_t> seen;
      for (const auto& batch : step) {
        for (const int64_t index : batch) seen.insert(groups[index]);
      }
      ASSERT_EQ(seen.size(), 1u);
    }
  }
}

// In maskrcnn-benchmark, grouping gives ranks different numbers of batches.
// Here a group with one sample takes a step on every rank.
TEST(GroupedOrder, RareGroupsTakeAStepOnEveryRank) {
  GroupedOptions grouped;
  grouped.window = Window(9, 4, 100);
  grouped.groups = {0, 0, 0, 0, 1, 0, 0, 0, 0};
  const auto order = *GroupedOrder::Create(std::move(grouped));
  SamplerOptions options;
  options.cut.batch_size = 2;
  options.cut.world = 2;
  const auto steps = StepsOf(order, options);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_THAT(steps[2], ElementsAre(ElementsAre(4), ElementsAre(4)));
}

TEST(GroupedOrder, AspectGroups) {
  EXPECT_THAT(AspectGroups({0.5, 1.0, 2.0, 0.99}, {1.0}),
              ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(AspectGroups({0.4, 0.5, 1.5, 9}, {0.5, 1.0, 2.0}),
              ElementsAre(0, 1, 2, 3));
}

TEST(LengthBuckets, WasteAtMostFivePercent) {
  constexpr int64_t kSize = 100000;
  const std::vector<int64_t> lengths = LogNormalLengths(kSize);
  SamplerOptions options;
  options.cut.batch_size = 32;
  options.cut.world = 4;
  // Similar lengths land on one rank. (With the strided layout, the batch of
  // every rank has the range of lengths of its global batch: the waste is about
  // 8 %, and ranks have equal work.)
  options.cut.layout = Layout::kBlocked;
  LengthBucketOptions buckets;
  buckets.window = Window(kSize, 128, 100);
  buckets.lengths = lengths;
  const auto plain = buckets.window.inner;
  const auto order = *LengthBuckets::Create(std::move(buckets));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const PaddingWaste waste,
      MeasurePaddingWaste(order, options, lengths, 0));
  EXPECT_LE(waste.share(), 0.05);
  EXPECT_THAT(MeasurePaddingWaste(order, options, {1, 2}, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("100000 samples, but there are 2 lengths")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const PaddingWaste shuffled,
      MeasurePaddingWaste(plain, options, lengths, 0));
  EXPECT_GT(shuffled.share(), 0.5);
  EXPECT_EQ(waste.data, shuffled.data);
}

TEST(LengthBuckets, ShufflesItsBatches) {
  LengthBucketOptions buckets;
  buckets.window = Window(1000, 10, 100);
  buckets.lengths = LogNormalLengths(1000);
  const std::vector<int64_t> lengths = buckets.lengths;
  const auto order = *LengthBuckets::Create(std::move(buckets));
  ExpectPermutation(order, 1000);
  const std::vector<int64_t> indices = ReadEpoch(*order, 0);
  int ascents = 0;
  for (size_t i = 10; i < indices.size(); i += 10) {
    ascents += lengths[indices[i]] > lengths[indices[i - 10]];
  }
  EXPECT_NEAR(ascents, 50, 25);
  EXPECT_NE(indices, ReadEpoch(*order, 1));
}

TEST(TokenBudget, IsNeverExceeded) {
  Random random(2);
  for (int round = 0; round < 100; ++round) {
    const int64_t size = random.Integer(1, 2000);
    TokenBudgetOptions budget;
    budget.window = Window(size, 256, 10);
    budget.lengths = LogNormalLengths(size);
    budget.max_tokens =
        *std::max_element(budget.lengths.begin(), budget.lengths.end()) +
        random.Integer(0, 5000);
    budget.world = random.Integer(1, 6);
    const std::vector<int64_t> lengths = budget.lengths;
    const int64_t max_tokens = budget.max_tokens;
    const auto order = *TokenBudget::Create(std::move(budget));
    ExpectPermutation(order, size);
    SamplerOptions options;
    options.cut.batch_size = 64;
    // Half of the time, the order was planned for another number of ranks.
    options.cut.world = random.Integer(1, 6);
    options.cut.tail = static_cast<Tail>(random.Below(3));
    options.cut.min_last_batch = random.Below(2);
    options.cut.small_last_batch = static_cast<SmallLastBatch>(random.Below(3));
    for (const auto& step : StepsOf(order, options)) {
      for (const auto& batch : step) {
        int64_t longest = 0;
        for (const int64_t index : batch) {
          longest = std::max(longest, lengths[index]);
        }
        ASSERT_LE(longest * static_cast<int64_t>(batch.size()), max_tokens);
      }
    }
  }
}

std::shared_ptr<const Order> Budget(int64_t size, int64_t length,
                                    int64_t max_tokens, int64_t world) {
  TokenBudgetOptions budget;
  budget.window = Window(size, 12, 10);
  budget.lengths.assign(size, length);
  budget.max_tokens = max_tokens;
  budget.world = world;
  return *TokenBudget::Create(std::move(budget));
}

// Joining a small last batch to the one before it would break the budget.
TEST(TokenBudget, DropsWhatItCannotJoin) {
  SamplerOptions options;
  options.cut.batch_size = 8;
  options.cut.min_last_batch = 2;
  for (const auto policy : {SmallLastBatch::kMerge, SmallLastBatch::kSpread}) {
    options.cut.small_last_batch = policy;
    const auto steps = StepsOf(Budget(3, 5, 10, 2), options);
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_EQ(steps[0][0].size(), 2u);
  }
}

// Planned batches count as full.
TEST(TokenBudget, DropLastKeepsPlannedBatches) {
  SamplerOptions options;
  options.cut.batch_size = 17;
  options.cut.world = 3;
  options.cut.drop_last = true;
  EXPECT_EQ(StepsOf(Budget(12, 1, 17, 3), options).size(), 1u);
}

TEST(TokenBudget, NamesTheConflictWithMinLastBatch) {
  SamplerOptions options;
  options.cut.batch_size = 4;
  options.cut.min_last_batch = 2;
  const auto sampler = *Sampler::Create(Budget(5, 10, 10, 1), options);
  LOCKSTEP_ASSERT_OK(sampler->StartEpoch(0));
  BatchIndices batch;
  EXPECT_THAT(sampler->Next(batch),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("allows 1 rows a rank at position 0, fewer "
                                 "than min_last_batch=2")));
}

// The batches use most of the budget.
TEST(TokenBudget, IsUsed) {
  TokenBudgetOptions budget;
  budget.window = Window(20000, 4096, 100);
  budget.lengths = LogNormalLengths(20000);
  budget.max_tokens = 16384;
  budget.world = 4;
  const std::vector<int64_t> lengths = budget.lengths;
  const auto order = *TokenBudget::Create(std::move(budget));
  SamplerOptions options;
  options.cut.batch_size = 1024;
  options.cut.world = 4;
  const auto steps = StepsOf(order, options);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const PaddingWaste waste,
      MeasurePaddingWaste(order, options, lengths, 1));
  const double used = static_cast<double>(waste.tokens) /
                      (16384.0 * 4 * static_cast<double>(steps.size()));
  EXPECT_GT(used, 0.85);
  EXPECT_LT(waste.share(), 0.05);
}

TEST(WindowedOrders, Conform) {
  for (const int64_t size : {0, 1, 100, 357}) {
    GroupedOptions grouped;
    grouped.window = Window(size, 8, 5);
    LengthBucketOptions buckets;
    buckets.window = Window(size, 8, 5);
    TokenBudgetOptions budget;
    budget.window = Window(size, 8, 5);
    budget.max_tokens = 1000;
    for (int64_t i = 0; i < size; ++i) {
      grouped.groups.push_back(i % 3);
      buckets.lengths.push_back(i * 7 % 100);
      budget.lengths.push_back(i * 7 % 100);
    }
    ExpectConforms(**GroupedOrder::Create(grouped), 1);
    ExpectConforms(**LengthBuckets::Create(buckets), 1);
    ExpectConforms(**TokenBudget::Create(budget), 1);
  }
}

// An order of 0 to 7. The first read of positions from 4 on fails.
class FailsOnce : public Order {
 public:
  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t /*epoch*/) const override {
    return std::make_unique<Stream>();
  }
  OrderDescription Describe() const override {
    OrderDescription description;
    description.order = "fails_once";
    description.size = 8;
    return description;
  }

 private:
  class Stream : public IndexStream {
   public:
    int64_t size() const override { return 8; }
    absl::Status Read(int64_t first, int64_t /*stride*/,
                      absl::Span<int64_t> out) override {
      if (first >= 4 && !std::exchange(failed_, true)) {
        return absl::UnavailableError("for now");
      }
      std::iota(out.begin(), out.end(), first);
      return absl::OkStatus();
    }

   private:
    bool failed_ = false;
  };
};

TEST(WindowedOrders, ReadOnAfterAWindowThatFailed) {
  GroupedOptions grouped;
  grouped.window.inner = std::make_shared<FailsOnce>();
  grouped.window.global_batch = 4;
  grouped.window.batches = 1;
  grouped.groups = {1, 0, 1, 0, 1, 0, 1, 0};
  const auto stream = *(*GroupedOrder::Create(grouped))->Open(0);
  std::vector<int64_t> window(4);
  const auto read_from = [&](int64_t first) {
    return stream->Read(first, 1, absl::MakeSpan(window));
  };
  LOCKSTEP_ASSERT_OK(read_from(0));
  EXPECT_THAT(read_from(4), StatusIs(absl::StatusCode::kUnavailable));
  LOCKSTEP_ASSERT_OK(read_from(0));
  EXPECT_THAT(window, ElementsAre(1, 3, 0, 2));
  LOCKSTEP_ASSERT_OK(read_from(4));
  EXPECT_THAT(window, ElementsAre(5, 7, 4, 6));
}

TEST(WindowedOrders, SayWhatIsWrong) {
  GroupedOptions grouped;
  EXPECT_THAT(GroupedOrder::Create(grouped),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("needs an inner order")));
  grouped.window = Window(3, 1, 1);
  grouped.groups = {1, 2};
  EXPECT_THAT(GroupedOrder::Create(grouped),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("walks 3 samples, but there are 2 groups")));
  grouped.window.global_batch = 0;
  EXPECT_THAT(GroupedOrder::Create(grouped),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("global_batch=0")));
  grouped.window = Window(3, int64_t{1} << 40, int64_t{1} << 40);
  EXPECT_THAT(GroupedOrder::Create(grouped),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("at most 2^32 positions")));
  grouped.window = Window(1, 1, 1);
  grouped.window.inner = Budget(1, 1, 1, 1);
  grouped.groups = {1};
  EXPECT_THAT(GroupedOrder::Create(grouped),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rearranges too (token_budget)")));
  TokenBudgetOptions budget;
  budget.window = Window(2, 1, 1);
  budget.lengths = {5, 11};
  budget.max_tokens = 10;
  EXPECT_THAT(TokenBudget::Create(budget),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("from 0 to 10, but lengths[1] is 11")));
}

}  // namespace
}  // namespace lockstep
