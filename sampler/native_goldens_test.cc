// Goldens of the native orders. Their indices and the breaks of their batches
// are a promise, so these constants must never change. The goldens of
// NativeShuffle are in native_shuffle_test.cc.
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/sampler/block_shuffle.h"
#include "lockstep/sampler/continued_mixture.h"
#include "lockstep/sampler/mixture.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/native_weighted.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/order_conformance.h"
#include "lockstep/sampler/packed.h"
#include "lockstep/sampler/repeat_factor.h"
#include "lockstep/sampler/stratified.h"
#include "lockstep/sampler/windowed.h"

namespace lockstep {
namespace {

constexpr int64_t kSize = 500;
constexpr uint64_t kSeed = 7;

// Digests the indices of epoch 3 and the segment of each position.
std::string DigestOfEpoch(const Order& order) {
  std::vector<int64_t> values = ReadEpoch(order, 3);
  const auto size = static_cast<int64_t>(values.size());
  const auto stream = *order.Open(3);
  for (int64_t position = 0; position < size; ++position) {
    const IndexStream::Segment segment = *stream->SegmentAt(position);
    for (const int64_t value :
         {segment.begin, segment.end, segment.max_rows, segment.rows}) {
      values.push_back(value);
    }
    values.insert(values.end(), segment.row_ends.begin(),
                  segment.row_ends.end());
  }
  return DigestOf({reinterpret_cast<const char*>(values.data()),
                   values.size() * sizeof(int64_t)})
      .ToString();
}

// Returns the label or length of each sample: 0, 1, 3, 4, 5 or 9. 0 is rarer.
std::vector<int64_t> Labels() {
  std::vector<int64_t> labels(kSize);
  for (int64_t i = 0; i < kSize; ++i) labels[i] = i * i % 11;
  return labels;
}

std::vector<double> Weights() {
  std::vector<double> weights;
  for (const int64_t label : Labels()) {
    weights.push_back(static_cast<double>(label) / 3);
  }
  return weights;
}

// Makes two windows, one of 320 positions and one of 180.
WindowOptions Window() {
  return {*NativeShuffle::Create({kSize, kSeed}), /*global_batch=*/16,
          /*batches=*/20, kSeed};
}

TEST(NativeGoldens, Stratified) {
  EXPECT_EQ(DigestOfEpoch(**StratifiedOrder::Create({Labels(), kSeed})),
            "eb2f02131235638af822430f2ad4590c");
}

// The stream has more than two passes of each source.
TEST(NativeGoldens, Mixture) {
  MixtureOptions options;
  options.sources = {{100, 3}, {70, 2}};
  options.stop = MixtureStop::kNumSamples;
  options.num_samples = kSize;
  options.seed = kSeed;
  EXPECT_EQ(DigestOfEpoch(**MixtureOrder::Create(options)),
            "0d7ec66126488d2db020014749c0a4d0");
}

// A phase begins in the middle of the epoch, and each source begins anew.
TEST(NativeGoldens, ContinuedMixture) {
  ContinuedMixtureOptions options;
  options.sources = {*NativeShuffle::Create({100, kSeed}),
                     *NativeShuffle::Create({70, kSeed + 1}),
                     *NativeShuffle::Create({9, kSeed + 2})};
  options.phases = {{0, {0.7, 0.3, 0}},
                    {3 * kSize + 250, {0.123456789, 0.3, 1e-9}}};
  options.end = MixtureStop::kNumSamples;
  options.num_samples = kSize;
  EXPECT_EQ(DigestOfEpoch(**ContinuedMixture::Create(options)),
            "da92489e9df8ed4453a32139b05ae6f6");
}

// Each epoch begins with a round, and goes on with the sources.
TEST(NativeGoldens, ContinuedMixtureOfRounds) {
  ContinuedMixtureOptions options;
  options.sources = {*NativeShuffle::Create({100, kSeed}),
                     *NativeShuffle::Create({70, kSeed + 1}),
                     *NativeShuffle::Create({30, kSeed + 2})};
  options.phases = {{0, {0.4, 0.35, 0.25}}};
  options.end = MixtureStop::kFirstExhausted;
  EXPECT_EQ(DigestOfEpoch(**ContinuedMixture::Create(options)),
            "a2d7fad873278840656c8630181c8fc3");
  options.end = MixtureStop::kAllExhausted;
  EXPECT_EQ(DigestOfEpoch(**ContinuedMixture::Create(options)),
            "5ea9057e579e2fca9b20848c52befa6d");
}

// The stream has three windows and a short chunk.
TEST(NativeGoldens, BlockShuffle) {
  EXPECT_EQ(DigestOfEpoch(**BlockShuffle::Create(
                {kSize, /*chunk_size=*/30, /*open_chunks=*/6, kSeed})),
            "0c85a5b8e3b8b927238ce9321411e286");
}

TEST(NativeGoldens, Grouped) {
  EXPECT_EQ(DigestOfEpoch(**GroupedOrder::Create({Window(), Labels()})),
            "53bd6290ed843fcdefb5417de02808e9");
}

TEST(NativeGoldens, LengthBuckets) {
  EXPECT_EQ(DigestOfEpoch(**LengthBuckets::Create({Window(), Labels()})),
            "a698a0e79737b75a866ef06ceef60cd3");
}

TEST(NativeGoldens, TokenBudget) {
  EXPECT_EQ(DigestOfEpoch(**TokenBudget::Create(
                {Window(), Labels(), /*max_tokens=*/20, /*world=*/3})),
            "973bb66fb3248d77bc3a2f15f33868c8");
}

// The epoch is one window, which has empty samples too.
TEST(NativeGoldens, Packed) {
  EXPECT_EQ(DigestOfEpoch(**PackedOrder::Create({Window(), Labels(),
                                                 /*row_length=*/20})),
            "82cb5e6855ad3ca8e0f76c1cae2e0a18");
}

// The longest samples lose their ends. An epoch has several windows.
TEST(NativeGoldens, PackedAndCut) {
  WindowOptions window = Window();
  window.batches = 3;
  EXPECT_EQ(DigestOfEpoch(**PackedOrder::Create(
                {window, Labels(), /*row_length=*/7, /*cut=*/true})),
            "865781853c9c09ec898112fbcbcfcff8");
}

TEST(NativeGoldens, RepeatFactors) {
  EXPECT_EQ(DigestOfEpoch(**RepeatFactorOrder::Create({Weights(), kSeed})),
            "ea8f87c71adbdc5606ced8657ac8f3d9");
}

TEST(NativeGoldens, Weighted) {
  EXPECT_EQ(DigestOfEpoch(**NativeWeighted::Create(
                {Weights(), kSize, /*replacement=*/true, kSeed})),
            "3e316a9da9e7ac989225f0e775dc235b");
}

TEST(NativeGoldens, WeightedWithoutReplacement) {
  EXPECT_EQ(
      DigestOfEpoch(**NativeWeighted::Create(
          {Weights(), /*num_samples=*/300, /*replacement=*/false, kSeed})),
      "97d4eb2c7a17d3d041d8b1ec79ad9d51");
}

}  // namespace
}  // namespace lockstep
