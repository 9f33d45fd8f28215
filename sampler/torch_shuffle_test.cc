#include "lockstep/sampler/torch_shuffle.h"

#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/torch_generator.h"
#include "lockstep/sampler/torch_permutation.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> ReadAt(TorchPermutation& permutation, int64_t first,
                            int64_t stride, int64_t count) {
  std::vector<int64_t> indices(count);
  EXPECT_THAT(permutation.Read(first, stride, absl::MakeSpan(indices)), IsOk());
  return indices;
}

std::vector<int64_t> Randperm(int64_t size, uint64_t seed,
                              TorchProfile profile = kNewestTorchProfile) {
  TorchPermutation permutation(size, profile, TorchGenerator(seed));
  return ReadAt(permutation, 0, 1, size);
}

// Computes the same by the definition, with the standard library's engine.
std::vector<int64_t> SlowRandperm(int64_t size, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<int64_t> values(size);
  std::iota(values.begin(), values.end(), 0);
  for (int64_t i = 0; i + 1 < size; ++i) {
    std::swap(values[i],
              values[i + static_cast<int64_t>(engine() % (size - i))]);
  }
  return values;
}

uint32_t Crc32(const std::vector<int64_t>& values) {
  uint32_t crc = ~0u;
  for (const int64_t value : values) {
    for (int byte = 0; byte < 8; ++byte) {
      crc ^= static_cast<uint64_t>(value) >> (8 * byte) & 0xff;
      for (int bit = 0; bit < 8; ++bit) {
        crc = crc >> 1 ^ (-(crc & 1) & 0xedb88320);
      }
    }
  }
  return ~crc;
}

TEST(TorchGenerator, IsMt19937OfTheLower32Bits) {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{42}, uint64_t{0xffffffff},
                              uint64_t{42} << 32 | 5}) {
    TorchGenerator generator(seed);
    std::mt19937 engine(static_cast<uint32_t>(seed));
    std::vector<uint32_t> words(2000);
    generator.Fill(absl::MakeSpan(words));
    for (const uint32_t word : words) ASSERT_EQ(word, engine());
    for (int i = 0; i < 2000; ++i) ASSERT_EQ(generator.Next32(), engine());
    const uint64_t high = engine(), low = engine();
    ASSERT_EQ(generator.Next64(), high << 32 | low);
  }
}

// These goldens were confirmed on PyTorch 1.13.0 and 2.14.1.
TEST(TorchPermutation, Goldens) {
  EXPECT_THAT(Randperm(0, 0), ElementsAre());
  EXPECT_THAT(Randperm(1, 0), ElementsAre(0));
  EXPECT_THAT(Randperm(6, 1234), ElementsAre(3, 2, 4, 5, 1, 0));
  EXPECT_THAT(Randperm(10, 0), ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_THAT(Randperm(10, 42), ElementsAre(2, 6, 1, 8, 4, 5, 0, 9, 3, 7));
}

TEST(TorchPermutation, GoldenDigests) {
  struct Golden {
    uint64_t seed;
    uint32_t crc_1000, crc_65537;
  };
  const Golden goldens[] = {{0, 0x458fa90f, 0x30a94f3d},
                            {1, 0x65b6b660, 0x4edda142},
                            {42, 0x1a5344c0, 0xddcfb043},
                            {1234, 0xcd6ea15d, 0x74c437f5},
                            {uint64_t{1} << 31, 0x75572225, 0x0a1d3d5f},
                            {0xffffffff, 0x74f88c71, 0x40930096}};
  for (const Golden& golden : goldens) {
    EXPECT_EQ(Crc32(Randperm(1000, golden.seed)), golden.crc_1000);
    EXPECT_EQ(Crc32(Randperm(65537, golden.seed)), golden.crc_65537);
  }
}

// Tests the last size of the forward algorithm, and the next size with profile
// 2.5, which uses the forward algorithm there too. The newest profile builds
// that size inside-out, which takes a gigabyte, so tools/ci/exhaustive tests
// it.
TEST(TorchPermutation, GoldensAroundTheSwitch) {
  TorchPermutation below(kTorchLargePermutation - 1, TorchProfile::k2_7,
                         TorchGenerator(0));
  EXPECT_THAT(ReadAt(below, 0, 1, 4),
              ElementsAre(209652414, 184016258, 65237881, 190120003));
  TorchPermutation at(kTorchLargePermutation, TorchProfile::k2_5,
                      TorchGenerator(0));
  EXPECT_THAT(ReadAt(at, 0, 1, 4),
              ElementsAre(209652404, 184016247, 65237867, 190119987));
}

TEST(TorchPermutation, EverySizeAgreesWithTheDefinition) {
  for (int64_t size = 0; size < 600; ++size) {
    ASSERT_EQ(Randperm(size, 9), SlowRandperm(size, 9)) << size;
  }
  for (const int64_t size : {1023, 1024, 1025, 65536, 100003, 3000000}) {
    ASSERT_EQ(Randperm(size, 10), SlowRandperm(size, 10)) << size;
  }
}

// The size is large enough for the hash that holds the first steps.
TEST(TorchPermutation, ReadsInAnyPiecesAndAgain) {
  constexpr int64_t kSize = 1200000;
  const std::vector<int64_t> expected = SlowRandperm(kSize, 3);
  Random random(1);
  for (int round = 0; round < 20; ++round) {
    TorchPermutation permutation(kSize, TorchProfile::k2_7, TorchGenerator(3));
    int64_t reach = 10;
    for (int read = 0; read < 40; ++read) {
      reach = std::min(kSize, reach + random.Integer(0, reach));
      const int64_t first = random.Integer(0, reach);
      const int64_t stride = random.Integer(1, 9);
      const int64_t count = random.Integer(0, (reach - first) / stride + 1);
      const std::vector<int64_t> got =
          ReadAt(permutation, first, stride, count);
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(got[i], expected[first + i * stride]);
      }
    }
  }
}

TEST(TorchPermutation, TellsTheBytesThatAreMissing) {
  constexpr int64_t kSize = int64_t{1} << 50;
  TorchPermutation forward(kSize, TorchProfile::k2_5, TorchGenerator(0));
  EXPECT_EQ(ReadAt(forward, 0, 1, 3).size(),
            3u);  // the first steps need no table
  EXPECT_THAT(forward.Prepare(), StatusIs(absl::StatusCode::kResourceExhausted,
                                          HasSubstr("9007199254740992 bytes")));
  TorchPermutation inside_out(kSize, TorchProfile::k2_7, TorchGenerator(0));
  int64_t index;
  EXPECT_THAT(inside_out.Read(0, 1, absl::MakeSpan(&index, 1)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("the native order needs none")));
}

TEST(TorchShuffle, EpochIsAddedToTheSeed) {
  TorchShuffleOptions options;
  options.size = 10;
  options.seed = 41;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto order,
                                TorchShuffle::Create(options));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto stream, order->Open(1));
  std::vector<int64_t> indices(10);
  LOCKSTEP_ASSERT_OK(stream->Read(0, 1, absl::MakeSpan(indices)));
  EXPECT_THAT(indices, ElementsAre(2, 6, 1, 8, 4, 5, 0, 9, 3, 7));
  EXPECT_EQ(order->Describe().ToString(),
            "torch_shuffle(size:10,seed:41,profile:2.7)");
}

TEST(TorchShuffle, SeedAndEpochOverflow) {
  EXPECT_THAT(TorchEpochSeed(~uint64_t{0}, 0), IsOkAndHolds(~uint64_t{0}));
  EXPECT_THAT(TorchEpochSeed(5, -3), IsOkAndHolds(2u));
  EXPECT_THAT(TorchEpochSeed(0, -1), IsOkAndHolds(~uint64_t{0}));
  EXPECT_THAT(TorchEpochSeed(~uint64_t{0}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("seed=18446744073709551615, epoch=1")));
  TorchShuffleOptions options;
  options.size = -1;
  EXPECT_THAT(
      TorchShuffle::Create(options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("got size=-1")));
}

}  // namespace
}  // namespace lockstep
