#include "lockstep/sampler/wrapped_orders.h"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/order_conformance.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/stratified.h"
#include "lockstep/sampler/windowed.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::shared_ptr<const Order> Native(int64_t size) {
  NativeShuffleOptions options;
  options.size = size;
  return *NativeShuffle::Create(options);
}

TEST(SubsetOrder, WalksTheSubset) {
  const auto order = *SubsetOrder::Create(Native(4), {2, 3, 5, 7}, 10);
  EXPECT_THAT(ReadEpoch(*order, 0), UnorderedElementsAre(2, 3, 5, 7));
  ExpectConforms(*order, 3);
  EXPECT_EQ(order->coverage(), Coverage::kAtMostOnce);
  EXPECT_EQ((*SubsetOrder::Create(Native(2), {1, 0}, 2))->coverage(),
            Coverage::kEachOnce);
  EXPECT_EQ((*SubsetOrder::Create(order, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 10))
                ->coverage(),
            Coverage::kAtMostOnce);
  EXPECT_THAT(SubsetOrder::Create(Native(3), {2, 3, 5, 7}, 10),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("indices, 4, but walks 3")));
  EXPECT_THAT(SubsetOrder::Create(Native(1), {10}, 10),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("indices[0] is 10")));
  EXPECT_THAT(SubsetOrder::Create(nullptr, {}, 10),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(RepeatedOrder, RepeatsInARow) {
  RepeatOptions options;
  options.repeats = 3;
  options.keep = 7;
  const auto order =
      *RepeatedOrder::Create(*SequentialOrder::Create(4), options);
  EXPECT_THAT(ReadEpoch(*order, 0), ElementsAre(0, 0, 0, 1, 1, 1, 2));
  options.keep = 0;
  ExpectConforms(**RepeatedOrder::Create(Native(50), options), 1);
  options.repeats = 0;
  EXPECT_THAT(
      RepeatedOrder::Create(Native(50), options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("repeats=0")));
  options.repeats = int64_t{1} << 61;
  EXPECT_THAT((*RepeatedOrder::Create(Native(50), options))->Open(0),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// Repeated augmentation: the copies of a sample go to different ranks.
TEST(RepeatedOrder, CopiesLandOnDifferentRanks) {
  RepeatOptions repeat;
  repeat.repeats = 3;
  const auto order = *RepeatedOrder::Create(Native(64), repeat);
  for (const int64_t world : {3, 4, 8}) {
    std::map<int64_t, std::set<int64_t>> ranks_of;
    int64_t rows = 0;
    SamplerOptions options;
    options.cut.batch_size = 5;
    options.cut.world = world;
    for (options.rank = 0; options.rank < world; ++options.rank) {
      const auto sampler = *Sampler::Create(order, options);
      LOCKSTEP_ASSERT_OK(sampler->StartEpoch(0));
      BatchIndices batch;
      while (*sampler->Next(batch)) {
        rows += batch.valid;
        for (int64_t row = 0; row < batch.valid; ++row) {
          ranks_of[batch.indices[row]].insert(options.rank);
        }
      }
    }
    EXPECT_EQ(rows, 3 * 64);
    EXPECT_EQ(ranks_of.size(), 64u);
    for (const auto& [index, ranks] : ranks_of) EXPECT_EQ(ranks.size(), 3u);
  }
}

// A wrapped order keeps the layout and the segments of its inner order.
TEST(WrappedOrders, KeepLayoutAndSegments) {
  StratifiedOptions stratified;
  stratified.labels = {0, 1, 0, 1};
  const auto inner = *StratifiedOrder::Create(stratified);
  EXPECT_TRUE(
      (*SubsetOrder::Create(inner, {3, 2, 1, 0}, 4))->NeedsBlockedLayout());
  EXPECT_TRUE(
      (*RepeatedOrder::Create(inner, RepeatOptions()))->NeedsBlockedLayout());

  GroupedOptions grouped;
  grouped.window.inner = Native(10);
  grouped.window.global_batch = 2;
  grouped.groups = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
  RepeatOptions repeat;
  repeat.keep = 29;
  const auto order =
      *RepeatedOrder::Create(*GroupedOrder::Create(grouped), repeat);
  ExpectConforms(*order, 1);
  SamplerOptions options;
  options.cut.batch_size = 8;
  const auto sampler = *Sampler::Create(order, options);
  LOCKSTEP_ASSERT_OK(sampler->StartEpoch(0));
  BatchIndices batch;
  while (*sampler->Next(batch)) {
    for (const int64_t index : batch.indices) {
      EXPECT_EQ(index % 2, batch.indices[0] % 2);
    }
  }
}

TEST(CustomOrder, BatchesAreKeptApart) {
  const auto order = *CustomOrder::CreateBatches(
      {"mine", 10, Coverage::kAtMostOnce},
      [](int64_t) -> absl::StatusOr<std::vector<std::vector<int64_t>>> {
        return std::vector<std::vector<int64_t>>{
            {7, 8, 9}, {}, {1}, {2, 3, 4, 5, 6}};
      });
  ExpectConforms(*order, 0);
  SamplerOptions options;
  options.cut.batch_size = 3;
  options.cut.world = 2;
  const auto sampler = *Sampler::Create(order, options);
  LOCKSTEP_ASSERT_OK(sampler->StartEpoch(0));
  BatchIndices batch;
  EXPECT_THAT(sampler->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.indices, ElementsAre(7, 9));
  EXPECT_THAT(sampler->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.indices, ElementsAre(1));
  EXPECT_THAT(sampler->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.indices, ElementsAre(2, 4, 6));
  EXPECT_THAT(sampler->Next(batch), IsOkAndHolds(false));
}

TEST(CustomOrder, WalksWhatTheFunctionGives) {
  const auto order = *CustomOrder::Create(
      {"mine", 10, Coverage::kAny},
      [](int64_t epoch) -> absl::StatusOr<std::vector<int64_t>> {
        return std::vector<int64_t>{epoch, 9, 9, 0};
      });
  EXPECT_THAT(ReadEpoch(*order, 3), ElementsAre(3, 9, 9, 0));
  ExpectConforms(*order, 1);
  EXPECT_EQ(order->Describe().ToString(), "mine(size:10)");
  EXPECT_THAT(order->Open(10), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("indices[0] is 10")));
}

TEST(CustomOrder, ErrorsAndExceptionsBecomeStatus) {
  const auto failing = *CustomOrder::Create(
      {"mine", 10}, [](int64_t) -> absl::StatusOr<std::vector<int64_t>> {
        return absl::NotFoundError("no index file");
      });
  EXPECT_THAT(failing->Open(4), StatusIs(absl::StatusCode::kNotFound,
                                         "mine, epoch 4: no index file"));
  const auto throwing = *CustomOrder::Create(
      {"mine", 10}, [](int64_t) -> absl::StatusOr<std::vector<int64_t>> {
        throw std::runtime_error("out of luck");
      });
  EXPECT_THAT(throwing->Open(4), StatusIs(absl::StatusCode::kUnknown,
                                          "mine, epoch 4: out of luck"));
  EXPECT_THAT(CustomOrder::Create({"", 10}, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lockstep
