#include "lockstep/sampler/native_shuffle.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

std::vector<int64_t> ReadAll(const NativePermutation& permutation) {
  std::vector<int64_t> indices(permutation.size());
  permutation.Read(0, 1, absl::MakeSpan(indices));
  return indices;
}

void ExpectBijection(int64_t size) {
  std::vector<bool> seen(size);
  for (const int64_t index : ReadAll(NativePermutation(size, 7))) {
    ASSERT_GE(index, 0) << size;
    ASSERT_LT(index, size);
    ASSERT_FALSE(seen[index]) << size;
    seen[index] = true;
  }
}

TEST(NativePermutation, IsABijectionAtEverySizeUpTo2000) {
  for (int64_t size = 0; size <= 2000; ++size) ExpectBijection(size);
}

TEST(NativePermutation, IsABijectionAroundPowersOfTwo) {
  for (int bits = 11; bits <= 24; ++bits) {
    for (const int64_t off : {-1, 0, 1}) {
      ExpectBijection((int64_t{1} << bits) + off);
    }
  }
}

TEST(NativePermutation, BulkIsOneByOne) {
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    const int64_t size = 1 + random.Integer(0, int64_t{1} << random.Below(62));
    const NativePermutation permutation(size, random());
    const int64_t stride = 1 + random.Integer(0, size / 8 + 1);
    const int64_t first = random.Integer(0, size);
    const int64_t most = (size - 1 - first) / stride + 1;
    std::vector<int64_t> indices(random.Below(std::min<int64_t>(most, 70) + 1));
    permutation.Read(first, stride, absl::MakeSpan(indices));
    for (size_t k = 0; k < indices.size(); ++k) {
      ASSERT_EQ(indices[k], permutation[first + stride * k]) << size;
      ASSERT_LT(indices[k], size);
    }
  }
}

TEST(NativePermutation, WorksAtTheLargestSize) {
  const NativePermutation permutation(int64_t{1} << 62, 3);
  std::vector<int64_t> indices(64);
  permutation.Read((int64_t{1} << 62) - 64, 1, absl::MakeSpan(indices));
  std::sort(indices.begin(), indices.end());
  EXPECT_GE(indices.front(), 0);
  EXPECT_LT(indices.back(), int64_t{1} << 62);
  EXPECT_EQ(std::unique(indices.begin(), indices.end()), indices.end());
}

// Counts the indices in each of 32 x 32 pairs of a part of the positions and a
// part of the values, and compares the counts with chance.
TEST(NativePermutation, PositionsAndValuesAreIndependent) {
  constexpr int64_t kParts = 32;
  for (const int64_t size : {1000, 100000, 1 << 20}) {
    double statistic = 0;
    constexpr int kKeys = 20;
    for (uint64_t key = 0; key < kKeys; ++key) {
      const std::vector<int64_t> indices =
          ReadAll(NativePermutation(size, RandomKey(key, 0, 0)));
      std::vector<int64_t> counts(kParts * kParts);
      for (int64_t i = 0; i < size; ++i) {
        ++counts[i * kParts / size * kParts + indices[i] * kParts / size];
      }
      const double expected = static_cast<double>(size) / (kParts * kParts);
      for (const int64_t count : counts) {
        statistic += (count - expected) * (count - expected) / expected;
      }
    }
    // The sums of rows and columns are given, which leaves 31 * 31 degrees of
    // freedom.
    const double freedom = kKeys * (kParts - 1) * (kParts - 1);
    EXPECT_NEAR(statistic, freedom, 5 * std::sqrt(2 * freedom)) << size;
  }
}

// Counts how often the most frequent difference of neighbours occurs. This is
// about 8 times in a random permutation of 2^20, and hundreds of times in
// Feistel networks with too few rounds.
TEST(NativePermutation, DifferencesOfNeighboursAreSpread) {
  for (uint64_t key = 0; key < 10; ++key) {
    const std::vector<int64_t> indices =
        ReadAll(NativePermutation(1 << 20, RandomKey(key, 0, 0)));
    std::unordered_map<int64_t, int> multiplicity;
    int most = 0;
    for (size_t i = 1; i < indices.size(); ++i) {
      most = std::max(most, ++multiplicity[indices[i] - indices[i - 1]]);
    }
    EXPECT_LE(most, 12) << key;
  }
}

// Every permutation of four must come about equally often over many keys.
TEST(NativePermutation, SmallOnesAreFairlyDrawn) {
  std::unordered_map<std::string, int> counts;
  for (uint64_t key = 0; key < 24000; ++key) {
    std::string text;
    for (const int64_t index :
         ReadAll(NativePermutation(4, RandomKey(key, 0, 0)))) {
      text += static_cast<char>('a' + index);
    }
    ++counts[text];
  }
  EXPECT_EQ(counts.size(), 24u);
  for (const auto& [text, count] : counts)
    EXPECT_NEAR(count, 1000, 160) << text;
}

TEST(NativeShuffle, SeedAndEpochAreApart) {
  auto read = [](uint64_t seed, int64_t epoch) {
    NativeShuffleOptions options;
    options.size = 1000;
    options.seed = seed;
    std::vector<int64_t> indices(1000);
    const auto stream = *(*NativeShuffle::Create(options))->Open(epoch);
    EXPECT_THAT(stream->Read(0, 1, absl::MakeSpan(indices)), IsOk());
    return indices;
  };
  EXPECT_EQ(read(1, 2), read(1, 2));
  EXPECT_NE(read(0, 1), read(1, 0));
  EXPECT_NE(read(0, 0), read(uint64_t{1} << 32, 0));
  EXPECT_NE(read(0, 0), read(0, -1));
}

// The order is a promise: these constants must never change.
TEST(NativeShuffleGolden, SameIndicesEverywhere) {
  std::string digests;
  for (const int64_t size :
       {int64_t{10}, int64_t{65537}, int64_t{1000000000000}}) {
    NativeShuffleOptions options;
    options.size = size;
    options.seed = 7;
    const auto stream = *(*NativeShuffle::Create(options))->Open(3);
    std::vector<int64_t> indices(std::min<int64_t>(size, 100000));
    ASSERT_THAT(stream->Read(0, 1, absl::MakeSpan(indices)), IsOk());
    digests += DigestOf({reinterpret_cast<const char*>(indices.data()),
                         indices.size() * sizeof(int64_t)})
                   .ToString() +
               " ";
  }
  EXPECT_EQ(digests,
            "57a7cc6ebc6bf1df0fdaa204db2c9352 "
            "d707bf9fda8b06ae8927324a11f0f021 "
            "3130dc0aeee840d02f6fa04dc7ab5601 ");
}

TEST(NativeShuffle, RefusesSizesItCannotHold) {
  for (const int64_t size : {int64_t{-1}, (int64_t{1} << 62) + 1}) {
    NativeShuffleOptions options;
    options.size = size;
    EXPECT_THAT(NativeShuffle::Create(options),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         testing::HasSubstr("size must be from 0 to 2^62")));
  }
}

}  // namespace
}  // namespace lockstep
