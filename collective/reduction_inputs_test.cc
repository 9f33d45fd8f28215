#include "lockstep/collective/reduction_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/random.h"
#include "lockstep/base/shard_tree.h"
#include "lockstep/collective/operation.h"

namespace lockstep::internal_collective {
namespace {

template <typename T>
uint64_t BitsOf(const T& value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

Operation OfShards(DType dtype, std::vector<int64_t> shards) {
  Operation op;
  op.kind = OpKind::kAllReduceShards;
  op.dtype = dtype;
  op.recv_counts = std::move(shards);
  return op;
}

// Adds up the values of shards, of which each rank has added up its own first.
// The last result is made in place of the first input.
template <typename T>
T SumOf(const std::vector<T>& shards, const std::vector<int64_t>& deal) {
  const auto all = static_cast<int64_t>(shards.size());
  const Operation op = OfShards(DTypeOf<T>(), deal);
  ReductionInputs inputs(static_cast<int>(deal.size()));
  inputs.Begin(op);
  std::vector<std::vector<T>> given(deal.size());
  int64_t shard = 0;
  for (size_t rank = 0; rank < deal.size(); ++rank) {
    for (const ShardRange& sum :
         ShardSumsOf(all, {shard, shard + deal[rank]})) {
      // One rank alone adds up what another one has added up.
      const std::vector<T> below(shards.begin() + sum.begin,
                                 shards.begin() + sum.end);
      if (below.size() == 1) {
        given[rank].push_back(below[0]);
      } else if (below.size() == 2 || below.size() == 3) {
        T total = below[0] + below[1];
        if (below.size() == 3) total += below[2];
        given[rank].push_back(total);
      } else {
        const auto half = static_cast<int64_t>(below.size()) / 2;
        given[rank].push_back(
            SumOf<T>({below.begin(), below.begin() + half}, {half}) +
            SumOf<T>({below.begin() + half, below.end()}, {half}));
      }
    }
    EXPECT_EQ(inputs.CountOf(static_cast<int>(rank)),
              static_cast<int64_t>(given[rank].size()));
    for (size_t i = 0; i < given[rank].size(); ++i) {
      inputs.At(static_cast<int>(rank), static_cast<int64_t>(i)) =
          &given[rank][i];
    }
    shard += deal[rank];
  }
  T second = 0;
  void* const outs[] = {&given[0][0], &second};
  inputs.Reduce(op, 1, outs);
  EXPECT_EQ(BitsOf(second), BitsOf(given[0][0]));
  return second;
}

template <typename T>
void ExpectSumsOfAllDeals() {
  Random random(RandomKey(/*seed=*/1, 0, 0));
  for (const int64_t shards : {1, 2, 3, 6, 8, 24, 48}) {
    for (int trial = 0; trial < 50; ++trial) {
      std::vector<T> values(shards);
      for (T& value : values) {
        value =
            static_cast<T>(random.Normal() * std::exp2(random.Integer(0, 30)));
      }
      const T expected = SumOf<T>(values, {shards});
      for (int64_t ranks = 1; ranks <= shards; ++ranks) {
        std::vector<int64_t> deal(ranks, 1);
        for (int64_t left = shards - ranks; left > 0; --left) {
          ++deal[random.Below(static_cast<uint64_t>(ranks))];
        }
        const T sum = SumOf<T>(values, deal);
        ASSERT_EQ(BitsOf(sum), BitsOf(expected))
            << shards << " shards on " << ranks << " ranks";
      }
    }
  }
}

TEST(ReductionInputs, ShardsHaveOneSumHoweverTheyAreDealt) {
  ExpectSumsOfAllDeals<float>();
  ExpectSumsOfAllDeals<double>();
}

// The sums by hand: 1e8 + 1 is 1e8, so each bracket shows.
TEST(ReductionInputs, TriplesComeBeforePairs) {
  const float large = 1e8f;
  // ((0 + 1) + 2) + ((3 + 4) + 5)
  EXPECT_EQ(SumOf<float>({large, 1, -large, 1, 1, 1}, {6}), 3);
  EXPECT_EQ(SumOf<float>({1, large, -large, 1, 1, 1}, {2, 1, 3}), 3);
  EXPECT_EQ(SumOf<float>({large, -large, 1, 1, 1, 1}, {3, 3}), 4);
  // (0 + 1) + (2 + 3)
  EXPECT_EQ(SumOf<float>({large, 1, -large, 1}, {1, 3}), 0);
  EXPECT_EQ(SumOf<float>({large, -large, 1, 1}, {4}), 2);
}

TEST(ReductionInputs, TheFirstNaNWins) {
  const auto nan_of = [](uint32_t bits) {
    bits |= 0x7fc00000;
    float nan;
    std::memcpy(&nan, &bits, sizeof(nan));
    return nan;
  };
  const std::vector<std::vector<int64_t>> deals = {
      {1, 1, 1, 1, 1, 1}, {2, 4}, {3, 3}, {5, 1}};
  for (const std::vector<int64_t>& deal : deals) {
    std::vector<float> shards(6, 1);
    shards[1] = nan_of(5);
    shards[4] = nan_of(6);
    const float sum = SumOf<float>(shards, deal);
    EXPECT_EQ(BitsOf(sum), BitsOf(shards[1]));
  }
}

// Elements of several blocks, and a rest.
TEST(ReductionInputs, EachElementIsOnItsOwn) {
  constexpr int64_t kCount = 3001;
  const Operation op = OfShards(DType::kF64, {2, 1, 1});
  ReductionInputs inputs(3);
  inputs.Begin(op);
  std::vector<std::vector<double>> given(3, std::vector<double>(kCount));
  for (int rank = 0; rank < 3; ++rank) {
    for (int64_t i = 0; i < kCount; ++i) {
      given[rank][i] = static_cast<double>((rank + 1) * i);
    }
    inputs.At(rank, 0) = given[rank].data();
  }
  std::vector<double> out(kCount + 1, -1);
  void* const outs[] = {out.data()};
  inputs.Reduce(op, kCount, outs);
  for (int64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(out[i], static_cast<double>(6 * i));
  }
  EXPECT_EQ(out[kCount], -1);
}

TEST(ReductionInputs, OperationsFollowEachOther) {
  ReductionInputs inputs(3);
  EXPECT_EQ(inputs.total(), 3);
  inputs.Begin(OfShards(DType::kF32, {8, 8, 8}));
  EXPECT_EQ(inputs.total(), 9);
  EXPECT_EQ(inputs.most(), 4);
  EXPECT_EQ(inputs.CountOf(0), 2);
  EXPECT_EQ(inputs.CountOf(1), 4);
  EXPECT_EQ(inputs.PlaceOf(2, 1), 7);
  inputs.Begin(OfShards(DType::kF32, {16, 4, 4}));
  EXPECT_EQ(inputs.total(), 8);
  EXPECT_EQ(inputs.CountOf(0), 3);
  inputs.Begin(Operation());
  EXPECT_EQ(inputs.total(), 3);
  EXPECT_EQ(inputs.most(), 1);
  EXPECT_EQ(inputs.CountOf(1), 1);
  inputs.Begin(OfShards(DType::kF32, {2, 4, 2}));
  EXPECT_EQ(inputs.total(), 4);
  EXPECT_EQ(inputs.most(), 2);
}

}  // namespace
}  // namespace lockstep::internal_collective
