#include "lockstep/sampler/native_weighted.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/order_conformance.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

NativeWeightedOptions Options(std::vector<double> weights, int64_t num_samples,
                              bool replacement, uint64_t seed = 0) {
  NativeWeightedOptions options;
  options.weights = std::move(weights);
  options.num_samples = num_samples;
  options.replacement = replacement;
  options.seed = seed;
  return options;
}

TEST(NativeWeighted, DrawsByTheWeights) {
  Random random(1);
  for (int round = 0; round < 20; ++round) {
    std::vector<double> weights(random.Integer(1, 50));
    for (double& weight : weights) {
      weight = random.Below(5) == 0 ? 0 : std::exp(3 * random.Normal());
    }
    weights.back() = 1;
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    constexpr int64_t kDraws = 100000;
    const auto order = *NativeWeighted::Create(
        Options(weights, kDraws, /*replacement=*/true, round));
    std::vector<int64_t> counts(weights.size());
    for (const int64_t index : ReadEpoch(*order, round)) ++counts[index];
    double chi_square = 0;
    int64_t freedom = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const double expected = kDraws * weights[i] / sum;
      if (weights[i] == 0) {
        ASSERT_EQ(counts[i], 0);
      } else if (expected >= 5) {
        chi_square += std::pow(counts[i] - expected, 2) / expected;
        ++freedom;
      }
    }
    EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2.0 * freedom) + 5);
  }
}

TEST(NativeWeighted, TinyWeightsAreWeightsToo) {
  const auto order =
      *NativeWeighted::Create(Options({5e-324, 0, 0}, 1000, true));
  for (const int64_t index : ReadEpoch(*order, 0)) ASSERT_EQ(index, 0);
}

TEST(NativeWeighted, WithoutReplacementNeverTwice) {
  const auto order = *NativeWeighted::Create(
      Options({1, 0, 2, 3, 0, 5, 8}, 5, /*replacement=*/false));
  for (int64_t epoch = 0; epoch < 1000; ++epoch) {
    const std::vector<int64_t> drawn = ReadEpoch(*order, epoch);
    const std::set<int64_t> different(drawn.begin(), drawn.end());
    ASSERT_EQ(different.size(), 5u);
    ASSERT_EQ(different.count(1) + different.count(4), 0u);
  }
}

// The chance of a pair is the chance to draw its first sample by weight, times
// the chance to draw its second by weight from the others.
TEST(NativeWeighted, WithoutReplacementByTheWeights) {
  const std::vector<double> weights = {1, 2, 4};
  const auto order =
      *NativeWeighted::Create(Options(weights, 2, /*replacement=*/false));
  constexpr int kEpochs = 42000;
  int counts[3][3] = {};
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<int64_t> drawn = ReadEpoch(*order, epoch);
    ++counts[drawn[0]][drawn[1]];
  }
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      const double chance =
          i == j ? 0 : weights[i] / 7 * weights[j] / (7 - weights[i]);
      EXPECT_NEAR(counts[i][j], kEpochs * chance,
                  5 * std::sqrt(kEpochs * chance) + 1e-9);
    }
  }
}

TEST(NativeWeighted, Conforms) {
  for (const bool replacement : {false, true}) {
    const auto order = *NativeWeighted::Create(
        Options({3, 1, 4, 1, 5, 9, 2, 6}, 8, replacement, 7));
    for (const int64_t epoch : {-1, 0, 1}) ExpectConforms(*order, epoch);
    EXPECT_NE(ReadEpoch(*order, 0), ReadEpoch(*order, 1));
  }
}

// The test has more weights than PyTorch accepts.
TEST(NativeWeighted, BeyondPyTorchsLimit) {
  std::vector<double> weights((1 << 24) + 1, 1.0);
  const auto order =
      *NativeWeighted::Create(Options(std::move(weights), 10, true));
  EXPECT_EQ(ReadEpoch(*order, 0).size(), 10u);
}

TEST(NativeWeighted, SaysWhatIsWrong) {
  EXPECT_THAT(NativeWeighted::Create(Options({1, 0, 1}, 3, false)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("positive weights, 2, but got "
                                 "num_samples=3")));
  EXPECT_THAT(NativeWeighted::Create(Options({1}, 0, true)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("num_samples should be a positive "
                                 "integer value, but got num_samples=0")));
  EXPECT_THAT(NativeWeighted::Create(Options({}, 1, true)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(NativeWeighted::Create(Options({NAN}, 1, true)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("weights[0] is nan")));
}

}  // namespace
}  // namespace lockstep
