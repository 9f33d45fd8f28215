#include "lockstep/sampler/torch_random.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/order_conformance.h"
#include "lockstep/sampler/torch_profile.h"

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

// The goldens were confirmed on PyTorch 1.13.0 and 2.14.1.
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

// These values were made by testdata/generate/torch_random.py on PyTorch 1.13.
TEST(TorchRandom, OwnAndDefaultGenerators) {
  TorchRandomOptions options = Options(10, 0, false);
  EXPECT_THAT(Epoch(options, 0), ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_THAT(Epoch(options, 2), ElementsAre(2, 9, 1, 7, 6, 8, 4, 5, 0, 3));
  options.generator = TorchGeneratorUse::kDefault;
  EXPECT_THAT(Epoch(options, 0), ElementsAre(6, 7, 1, 4, 2, 0, 9, 8, 3, 5));
  EXPECT_THAT(Epoch(options, 1), ElementsAre(2, 4, 7, 0, 8, 9, 5, 3, 6, 1));
}

// These values were made by testdata/generate/torch_random.py on PyTorch 1.13,
// with loaders that have workers.
TEST(TorchOrders, PersistentWorkersDrawOneBaseSeed) {
  TorchRandomOptions options = Options(10, 0, false);
  options.persistent_workers = true;
  options.generator = TorchGeneratorUse::kSharedWithLoader;
  EXPECT_THAT(Epoch(options, 0), ElementsAre(3, 7, 5, 2, 0, 8, 1, 6, 9, 4));
  EXPECT_THAT(Epoch(options, 1), ElementsAre(6, 3, 9, 5, 0, 4, 7, 2, 1, 8));
  EXPECT_THAT(Epoch(options, 2), ElementsAre(1, 8, 4, 3, 0, 9, 5, 6, 7, 2));
  options.generator = TorchGeneratorUse::kDefault;
  EXPECT_THAT(Epoch(options, 0), ElementsAre(6, 7, 1, 4, 2, 0, 9, 8, 3, 5));
  EXPECT_THAT(Epoch(options, 1), ElementsAre(3, 5, 0, 6, 1, 2, 4, 9, 7, 8));
  EXPECT_THAT(Epoch(options, 2), ElementsAre(2, 4, 7, 0, 8, 9, 5, 3, 6, 1));

  TorchSubsetOptions subset;
  subset.indices = {5, 6, 7, 8, 9};
  subset.size = 10;
  subset.seed = 0;
  subset.generator = TorchGeneratorUse::kSharedWithLoader;
  subset.persistent_workers = true;
  const auto subsets = *TorchSubset::Create(subset);
  EXPECT_THAT(ReadEpoch(*subsets, 1), ElementsAre(7, 9, 8, 6, 5));
  EXPECT_THAT(ReadEpoch(*subsets, 2), ElementsAre(6, 8, 7, 9, 5));

  TorchWeightedOptions weighted;
  weighted.weights = {.1, .9, .4, .7, 3, .6};
  weighted.num_samples = 5;
  weighted.seed = 0;
  weighted.generator = TorchGeneratorUse::kSharedWithLoader;
  weighted.persistent_workers = true;
  const auto draws = *TorchWeighted::Create(weighted);
  EXPECT_THAT(ReadEpoch(*draws, 1), ElementsAre(2, 3, 4, 3, 4));
  EXPECT_THAT(ReadEpoch(*draws, 2), ElementsAre(2, 3, 4, 4, 4));
}

// A state names persistent workers only where they make a difference.
TEST(TorchRandom, PersistentWorkersAreInItsDescription) {
  const auto describe = [](TorchGeneratorUse use, bool persistent_workers) {
    TorchRandomOptions options = Options(10, 0, false);
    options.generator = use;
    options.persistent_workers = persistent_workers;
    return (*TorchRandom::Create(options))->Describe().ToString();
  };
  const auto shared = TorchGeneratorUse::kSharedWithLoader;
  EXPECT_NE(describe(shared, true), describe(shared, false));
  const auto own = TorchGeneratorUse::kOwn;
  EXPECT_EQ(describe(own, true), describe(own, false));
}

// If each permutation took as long as all before it, this test would take
// minutes.
TEST(TorchRandom, AnyNumberOfPermutationsInAnyOrder) {
  constexpr int64_t kSize = 10, kPermutations = 200000;
  const auto order =
      *TorchRandom::Create(Options(kSize, kSize * kPermutations, false));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto stream, order->Open(0));
  std::vector<int64_t> all(kSize * kPermutations);
  LOCKSTEP_ASSERT_OK(stream->Read(0, 1, absl::MakeSpan(all)));
  for (int64_t i = 0; i < kPermutations; ++i) {
    int64_t sum = 0;
    for (int64_t k = 0; k < kSize; ++k) sum += 1 << all[i * kSize + k];
    ASSERT_EQ(sum, (1 << kSize) - 1) << "permutation " << i;
  }
  for (const int64_t number : {3, 2, 77777, 0, 199999, 77778}) {
    std::vector<int64_t> again(kSize);
    LOCKSTEP_ASSERT_OK(stream->Read(number * kSize, 1, absl::MakeSpan(again)));
    EXPECT_THAT(again, ElementsAreArray(all.data() + number * kSize, kSize));
  }
}

TEST(TorchOrders, EpochsAreTheSameInAnyOrder) {
  for (const TorchGeneratorUse use :
       {TorchGeneratorUse::kOwn, TorchGeneratorUse::kSharedWithLoader,
        TorchGeneratorUse::kDefault}) {
    TorchRandomOptions options = Options(100, 250, false);
    options.generator = use;
    const auto order = *TorchRandom::Create(options);
    for (const int64_t epoch : {0, 1, 0, 2, 1, 3, 9, 4, 4, 5, 30, 2, 31, 30}) {
      EXPECT_EQ(ReadEpoch(*order, epoch), Epoch(options, epoch)) << epoch;
    }
  }
}

TEST(TorchProfile, BuildsInsideOutFromTheSwitchOn) {
  for (const TorchProfile profile : {TorchProfile::k2_6, TorchProfile::k2_7}) {
    EXPECT_FALSE(BuildsInsideOut(profile, 214748363));
    EXPECT_TRUE(BuildsInsideOut(profile, 214748364));
  }
  EXPECT_FALSE(BuildsInsideOut(TorchProfile::k2_5, 214748364));
}

TEST(TorchProfile, IsKnownByAnyRelease) {
  const std::pair<const char*, TorchProfile> releases[] = {
      {"1.13", TorchProfile::k1_13},
      {"1.13.1+cu117", TorchProfile::k1_13},
      {"2.0", TorchProfile::k1_13},
      {"2.4.1", TorchProfile::k1_13},
      {"2.5", TorchProfile::k2_5},
      {"2.6.0", TorchProfile::k2_6},
      {"2.7", TorchProfile::k2_7},
      {"2.10", TorchProfile::k2_7},
      {"2.15.0a0+git", TorchProfile::k2_7},
      {"3.0", TorchProfile::k2_7}};
  for (const auto& [name, profile] : releases) {
    EXPECT_THAT(ParseTorchProfile(name), IsOkAndHolds(profile)) << name;
  }
  for (const char* name : {"", "2", "1.12", "0.4", "2.x", "v2.6", "2.6 ",
                           "-2.6", "2,6", "99999999999.1", "newest"}) {
    EXPECT_THAT(ParseTorchProfile(name),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("release of PyTorch from 1.13 on")))
        << name;
  }
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

TEST(TorchOrders, SayHowOftenSamplesCome) {
  const auto of = [](int64_t draws, bool replacement) {
    return (*TorchRandom::Create(Options(100, draws, replacement)))->coverage();
  };
  EXPECT_EQ(of(0, false), Coverage::kEachOnce);
  EXPECT_EQ(of(100, false), Coverage::kEachOnce);
  EXPECT_EQ(of(99, false), Coverage::kAtMostOnce);
  EXPECT_EQ(of(101, false), Coverage::kAny);
  EXPECT_EQ(of(99, true), Coverage::kAny);
  TorchSubsetOptions subset;
  subset.size = 4;
  subset.indices = {3, 1, 0};
  EXPECT_EQ((*TorchSubset::Create(subset))->coverage(), Coverage::kAtMostOnce);
  subset.indices = {3, 1, 0, 2};
  EXPECT_EQ((*TorchSubset::Create(subset))->coverage(), Coverage::kEachOnce);
  subset.indices = {3, 1, 3};
  EXPECT_EQ((*TorchSubset::Create(subset))->coverage(), Coverage::kAny);
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
