#include "lockstep/gradients/exact_sum.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/random.h"
#include "lockstep/base/shard_tree.h"

namespace lockstep::internal_gradients {
namespace {

using testing::ElementsAre;

constexpr int64_t kCount = 100;

template <typename T>
using Values = std::vector<std::vector<T>>;  // by shard

template <typename T>
Values<T> MakeValues(int64_t shards) {
  Random random(static_cast<uint64_t>(shards));
  Values<T> values(shards, std::vector<T>(kCount));
  for (auto& of_shard : values) {
    for (T& value : of_shard) {
      value = T(static_cast<float>(random.Normal() *
                                   (random.Below(4) == 0 ? 1e4 : 1)));
    }
  }
  return values;
}

// Returns the sum of shards along the tree, by its definition.
template <typename Sum, typename T>
std::vector<Sum> SumOf(const Values<T>& values, int64_t begin, int64_t end) {
  std::vector<Sum> sum;
  if (end - begin == 1) {
    for (const T value : values[begin]) sum.push_back(static_cast<Sum>(value));
    return sum;
  }
  const int64_t middle = end - begin == 3 ? begin + 2 : (begin + end) / 2;
  sum = SumOf<Sum>(values, begin, middle);
  const std::vector<Sum> second = SumOf<Sum>(values, middle, end);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += second[i];
  return sum;
}

template <typename T>
std::string BytesOf(const T* values) {
  return std::string(reinterpret_cast<const char*>(values), kCount * sizeof(T));
}

// Each rank's sums are those of the tree.
template <typename T, typename Sum>
void ExpectSums() {
  for (const int64_t shards : {1, 2, 3, 4, 6, 12, 16, 24}) {
    const Values<T> values = MakeValues<T>(shards);
    for (int64_t ranks = 1; ranks <= shards; ++ranks) {
      int64_t first = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const ExactSum exact(shards, ranks, rank);
        EXPECT_EQ(exact.own().begin, first);
        EXPECT_EQ(exact.own().end, first + exact.shards()[rank]);
        constexpr int64_t kStride = kCount + 3;
        std::vector<Sum> slots(exact.slots() * kStride, Sum{-7});
        for (int64_t i = 0; i < exact.count(); ++i) {
          exact.Add(i, DTypeOf<T>(), values[first + i].data(), kCount,
                    DTypeOf<Sum>(), slots.data(), kStride);
        }
        const std::vector<ShardRange> sums = ShardSumsOf(shards, exact.own());
        EXPECT_EQ(exact.sums(), static_cast<int64_t>(sums.size()));
        for (size_t k = 0; k < sums.size(); ++k) {
          const auto expected = SumOf<Sum>(values, sums[k].begin, sums[k].end);
          EXPECT_EQ(BytesOf(&slots[k * kStride]), BytesOf(expected.data()))
              << shards << " shards, rank " << rank << " of " << ranks;
        }
        for (int64_t k = 1; k <= exact.slots(); ++k) {
          EXPECT_EQ(slots[k * kStride - 1], -7);
        }
        first = exact.own().end;
      }
      EXPECT_EQ(first, shards);
    }
  }
}

TEST(ExactSum, HasTheSumsOfTheTree) {
  ExpectSums<float, float>();
  ExpectSums<double, double>();
  ExpectSums<Float16, float>();
  ExpectSums<BFloat16, float>();
  ExpectSums<float, double>();
}

// docs/determinism.md states the memory that it takes.
TEST(ExactSum, FewSumsWaitAtATime) {
  const auto most_slots = [](int64_t shards, int64_t ranks) {
    int64_t most = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      most = std::max(most, ExactSum(shards, ranks, rank).slots());
    }
    return most;
  };
  std::vector<int64_t> slots;
  for (int64_t ranks = 1; ranks <= 8; ++ranks) {
    slots.push_back(most_slots(24, ranks));
  }
  EXPECT_THAT(slots, ElementsAre(4, 3, 4, 2, 3, 3, 3, 1));
}

TEST(ExactSum, DealsShardsAsTheLoaderDoes) {
  const ExactSum exact(24, 5, 4);
  EXPECT_THAT(exact.shards(), ElementsAre(5, 5, 5, 5, 4));
  EXPECT_EQ(exact.count(), 4);
  EXPECT_EQ(exact.own().begin, 20);
}

}  // namespace
}  // namespace lockstep::internal_gradients
