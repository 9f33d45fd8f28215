#include "lockstep/sampler/torch_random.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/order_conformance.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

TorchRandomOptions Options(int64_t size, int64_t num_samples,
                           bool replacement) {
  TorchRandomOptions options;
  options.size = size;
  options.num_samples = num_samples;
  options.replacement = replacement;
  options.seed = 0;
  return options;
}

std::vector<int64_t> Epoch(const TorchRandomOptions& options,
                           int64_t epoch = 0) {
  return ReadEpoch(**TorchRandom::Create(options), epoch);
}

// Goldens of research section 1.9 and its appendix, confirmed on PyTorch 1.13.0
// and 2.14.1.
TEST(TorchRandom, WithReplacement) {
  const int64_t expected[] = {4, 9, 3, 0, 3, 9, 7, 3, 7, 3, 1, 6, 6, 9,
                              8, 6, 6, 8, 4, 3, 6, 9, 1, 4, 4, 1, 9, 9,
                              9, 0, 1, 2, 3, 0, 5, 5, 2, 9, 1, 8};
  EXPECT_THAT(Epoch(Options(10, 40, true)), ElementsAreArray(expected));
}

TEST(TorchRandom, MoreSamplesThanThereAre) {
  EXPECT_THAT(Epoch(Options(10, 25, false)),
              ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2, 3, 9, 4, 2, 7, 8, 6, 0,
                          5, 1, 4, 0, 8, 5, 9));
}

TEST(TorchRandom, OneGeneratorForLoaderAndSampler) {
  TorchRandomOptions options = Options(10, 0, false);
  options.generator = TorchGeneratorUse::kSharedWithLoader;
  EXPECT_THAT(Epoch(options, 0), ElementsAre(3, 7, 5, 2, 0, 8, 1, 6, 9, 4));
  EXPECT_THAT(Epoch(options, 1), ElementsAre(1, 3, 2, 7, 5, 9, 0, 6, 4, 8));
  EXPECT_THAT(Epoch(options, 2), ElementsAre(6, 8, 5, 7, 2, 4, 1, 0, 3, 9));
}

// Made by testdata/generate/torch_random.py on PyTorch 1.13.
TEST(TorchRandom, OwnAndDefaultGenerators) {
  TorchRandomOptions options = Options(10, 0, false);
  EXPECT_THAT(Epoch(options, 0), ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_THAT(Epoch(options, 2), ElementsAre(2, 9, 1, 7, 6, 8, 4, 5, 0, 3));
  options.generator = TorchGeneratorUse::kDefault;
  EXPECT_THAT(Epoch(options, 0), ElementsAre(6, 7, 1, 4, 2, 0, 9, 8, 3, 5));
  EXPECT_THAT(Epoch(options, 1), ElementsAre(2, 4, 7, 0, 8, 9, 5, 3, 6, 1));
}

TEST(TorchRandom, WideRangesByProfile) {
  TorchRandomOptions options = Options(int64_t{1} << 28, 3, true);
  EXPECT_THAT(Epoch(options), ElementsAre(130329135, 136432832, 195187451));
  options.profile = TorchProfile::k2_6;
  EXPECT_THAT(Epoch(options), ElementsAre(209652396, 130329135, 118924917));
}

TEST(TorchSubset, Golden) {
  TorchSubsetOptions options;
  options.indices = {5, 6, 7, 8, 9};
  options.size = 10;
  options.seed = 0;
  EXPECT_THAT(ReadEpoch(**TorchSubset::Create(options), 0),
              ElementsAre(9, 5, 6, 8, 7));
}

TEST(TorchWeighted, Goldens) {
  TorchWeightedOptions options;
  options.weights = {.1, .9, .4, .7, 3, .6};
  options.num_samples = 5;
  options.seed = 0;
  EXPECT_THAT(ReadEpoch(**TorchWeighted::Create(options), 0),
              ElementsAre(5, 4, 4, 5, 4));
  options.weights.assign(10, 1);
  options.num_samples = 7;
  options.seed = 123;
  EXPECT_THAT(ReadEpoch(**TorchWeighted::Create(options), 0),
              ElementsAre(3, 0, 5, 0, 4, 5, 6));
}

TEST(TorchWeighted, ZeroWeightsAreNeverDrawn) {
  TorchWeightedOptions options;
  options.weights = {0, 1, 0, 2, 0};
  options.num_samples = 10000;
  int64_t counts[5] = {};
  for (const int64_t index : ReadEpoch(**TorchWeighted::Create(options), 0)) {
    ++counts[index];
  }
  EXPECT_EQ(counts[0] + counts[2] + counts[4], 0);
  EXPECT_NEAR(counts[1], 3333, 250);
}

TEST(TorchOrders, Conform) {
  for (const int64_t epoch : {0, 1, 5}) {
    ExpectConforms(**TorchRandom::Create(Options(100, 0, false)), epoch);
    ExpectConforms(**TorchRandom::Create(Options(100, 37, false)), epoch);
    ExpectConforms(**TorchRandom::Create(Options(100, 999, false)), epoch);
    ExpectConforms(**TorchRandom::Create(Options(100, 999, true)), epoch);
    TorchSubsetOptions subset;
    subset.size = 100;
    subset.indices = {3, 1, 4, 1, 5, 92, 65, 35};
    ExpectConforms(**TorchSubset::Create(subset), epoch);
    TorchWeightedOptions weighted;
    weighted.weights = {3, 1, 4, 1, 5};
    weighted.num_samples = 300;
    ExpectConforms(**TorchWeighted::Create(weighted), epoch);
  }
}

TEST(TorchOrders, ErrorsUsePyTorchsWords) {
  EXPECT_THAT(TorchRandom::Create(Options(0, 0, false)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("num_samples should be a positive integer "
                                 "value, but got num_samples=0")));
  EXPECT_THAT(TorchRandom::Create(Options(10, -1, false)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("num_samples=-1")));
  TorchWeightedOptions options;
  options.num_samples = 5;
  options.weights = {1, -1};
  EXPECT_THAT(TorchWeighted::Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("element < 0: weights[1] is -1")));
  options.weights = {0, 0};
  EXPECT_THAT(TorchWeighted::Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sum of probabilities <= 0")));
  options.weights = {1, 1};
  options.num_samples = 1;
  EXPECT_THAT(TorchWeighted::Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("takes 2 or more")));
  EXPECT_THAT(
      (*TorchRandom::Create(Options(5, 0, false)))->Open(int64_t{1} << 62),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("more than 2^48 random words")));
  TorchSubsetOptions subset;
  subset.size = 3;
  subset.indices = {0, 3};
  EXPECT_THAT(TorchSubset::Create(subset),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("indices[1] is 3")));
  EXPECT_THAT(
      (*TorchRandom::Create(Options(3, 0, false)))->Open(-1),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("epoch=-1")));
}

}  // namespace
}  // namespace lockstep
