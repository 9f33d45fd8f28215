#include "lockstep/base/random.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/base/fingerprint.h"

namespace lockstep {
namespace {

// Random has no heap memory and nothing to destroy.
static_assert(std::is_trivially_copyable_v<Random>);
static_assert(std::is_trivially_destructible_v<Random>);
static_assert(sizeof(Random) <= 48);

template <typename T>
std::string DigestOfValues(const std::vector<T>& values) {
  return DigestOf({reinterpret_cast<const char*>(values.data()),
                   values.size() * sizeof(T)})
      .ToString();
}

// This tests the promise of same bits. tools/ci/same_bits runs it with other
// compilers, flags and C library variants. These constants must never change.
TEST(RandomGolden, SameBitsEverywhere) {
  Random random(RandomKey(7, 1, 2), 3);
  std::vector<double> values(2000000);
  for (int i = 0; i < 1000000; ++i) values[i] = random.Uniform();
  for (int i = 1000000; i < 2000000; ++i) values[i] = random.Normal();
  EXPECT_EQ(random.draws(), 2000000u);
  EXPECT_EQ(DigestOfValues(values), "8ac7b484bf4919d526ea4a7996da0c1d");
}

TEST(RandomGolden, OfEveryDistribution) {
  Random random(RandomKey(7, 1, 2), 3);
  std::vector<double> reals;
  std::vector<int64_t> integers(1000);
  std::iota(integers.begin(), integers.end(), 0);
  random.Shuffle(absl::MakeSpan(integers));
  for (int i = 0; i < 1000; ++i) {
    reals.push_back(random.Uniform(-3, 5));
    reals.push_back(random.Normal(1, 0.1));
    integers.push_back(static_cast<int64_t>(random.Below(1000 + i)));
    integers.push_back(random.Integer(-i - 1, i));
  }
  EXPECT_EQ(DigestOfValues(reals), "2f1f59b54f0731fa2a31da35ed4cf4ec");
  EXPECT_EQ(DigestOfValues(integers), "45a4504a28964f30f8ed604753fb6f44");
}

TEST(Random, DrawsArePhiloxBlocksOfItsPosition) {
  Random random(11, 22);
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(random.draws(), 2 * i);
    const PhiloxBlock block = Philox(11, {i, 22});
    EXPECT_EQ(random(), block.low);
    EXPECT_EQ(random(), block.high);
  }
}

TEST(Random, KeyTellsSeedStreamAndEpochApart) {
  std::set<uint64_t> keys;
  for (uint64_t seed : {0u, 1u, 2u}) {
    for (uint64_t stream : {0u, 1u, 2u}) {
      for (uint64_t epoch : {0u, 1u, 2u}) {
        keys.insert(RandomKey(seed, stream, epoch));
        keys.insert(RandomKey(seed << 32, stream << 32, epoch << 32));
      }
    }
  }
  // 0, 0, 0 is the only triple that shifting does not change.
  EXPECT_EQ(keys.size(), 2 * 27u - 1);
}

template <typename T, typename Fill, typename One>
void ExpectFillIsOneByOne(Fill fill, One one) {
  for (const size_t before : {0, 1}) {
    for (const size_t size : {0, 1, 2, 3, 15, 16, 17, 127, 128, 129, 1000}) {
      Random bulk(5), single(5);
      for (size_t i = 0; i < before; ++i) bulk(), single();
      std::vector<T> values(size);
      fill(bulk, absl::MakeSpan(values));
      for (size_t i = 0; i < size; ++i) ASSERT_EQ(values[i], one(single)) << i;
      ASSERT_EQ(bulk.draws(), single.draws());
      ASSERT_EQ(bulk(), single());
    }
  }
}

TEST(Random, FillIsOneByOne) {
  ExpectFillIsOneByOne<uint64_t>([](Random& r, auto out) { r.Fill(out); },
                                 [](Random& r) { return r(); });
  ExpectFillIsOneByOne<double>([](Random& r, auto out) { r.FillUniform(out); },
                               [](Random& r) { return r.Uniform(); });
  ExpectFillIsOneByOne<float>(
      [](Random& r, auto out) { r.FillUniform(out); },
      [](Random& r) {
        return static_cast<float>(std::floor(r.Uniform() * 0x1p24) * 0x1p-24);
      });
  ExpectFillIsOneByOne<double>([](Random& r, auto out) { r.FillNormal(out); },
                               [](Random& r) { return r.Normal(); });
  ExpectFillIsOneByOne<float>(
      [](Random& r, auto out) { r.FillNormal(out); },
      [](Random& r) { return static_cast<float>(r.Normal()); });
}

TEST(Random, UniformStaysInItsRangeAndFillsIt) {
  Random random(1);
  std::vector<int> counts(16);
  for (int i = 0; i < 160000; ++i) {
    const double u = random.Uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++counts[static_cast<int>(u * 16)];
  }
  // Each count is expected to be 10,000, with standard deviation 97.
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
}

TEST(Random, UniformNeverReachesTheUpperEnd) {
  Random random(1);
  const double one_up = std::nextafter(1.0, 2.0);
  const double two_up = std::nextafter(one_up, 2.0);
  const double one_down = std::nextafter(0.0, -1.0);
  bool seen_low = false, seen_high = false;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(random.Uniform(1.0, one_up), 1.0);
    EXPECT_LT(random.Uniform(-one_up, -1.0), -1.0);
    EXPECT_EQ(random.Uniform(one_down, 0.0), one_down);
    const double value = random.Uniform(1.0, two_up);
    seen_low |= value == 1.0;
    seen_high |= value == one_up;
  }
  EXPECT_TRUE(seen_low && seen_high);
}

TEST(Random, EmptyRangesGiveTheirLowEnd) {
  Random random(1);
  EXPECT_EQ(random.Uniform(3, 3), 3);
  EXPECT_EQ(random.Uniform(3, 2), 3);
  EXPECT_EQ(random.Below(0), 0u);
  EXPECT_EQ(random.Integer(3, 3), 3);
  EXPECT_EQ(random.Integer(3, -3), 3);
  EXPECT_EQ(random.draws(), 0u);
}

TEST(Random, BelowIsEvenlySpread) {
  Random random(2);
  for (const uint64_t n : {1, 2, 3, 10, 1000}) {
    std::vector<int64_t> counts(n);
    const int64_t expected = 2000;
    for (uint64_t i = 0; i < n * expected; ++i) ++counts[random.Below(n)];
    double chi_square = 0;
    for (const int64_t count : counts) {
      const double difference = static_cast<double>(count - expected);
      chi_square += difference * difference / expected;
    }
    // The mean is n - 1, and the standard deviation is sqrt(2n). Five
    // deviations are allowed.
    EXPECT_LT(chi_square, n - 1 + 5 * std::sqrt(2.0 * n)) << n;
  }
}

TEST(Random, BelowRejectsWhatWouldBeUneven) {
  // At n = 3 * 2^62 a quarter of the draws are rejected.
  constexpr uint64_t kN = uint64_t{3} << 62;
  Random random(3);
  int thirds[3] = {};
  for (int i = 0; i < 30000; ++i) ++thirds[random.Below(kN) >> 62];
  EXPECT_NEAR(random.draws(), 40000, 1000);
  for (const int third : thirds) EXPECT_NEAR(third, 10000, 500);
}

TEST(Random, IntegerCoversExtremeRanges) {
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
  Random random(4);
  int negative = 0;
  for (int i = 0; i < 10000; ++i) {
    negative += random.Integer(kLow, kHigh) < 0;
    const int64_t die = random.Integer(-2, 4);
    ASSERT_GE(die, -2);
    ASSERT_LT(die, 4);
  }
  EXPECT_NEAR(negative, 5000, 300);
}

TEST(Random, ShuffleMakesEveryPermutationEquallyLikely) {
  Random random(6);
  std::vector<int> counts(24);
  for (int i = 0; i < 24000; ++i) {
    std::string letters = "abcd";
    random.Shuffle(absl::MakeSpan(&letters[0], letters.size()));
    std::string each = "abcd";
    int rank = 0;
    while (each != letters) {
      ASSERT_TRUE(std::next_permutation(each.begin(), each.end()));
      ++rank;
    }
    ++counts[rank];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 160);
  std::vector<int> none;
  random.Shuffle(absl::MakeSpan(none));
}

// The chance that a normal number exceeds z must equal the tail that the draw
// stands for. This checks the formulas against the C library's erfc.
TEST(Random, NormalIsTheQuantileOfItsDraw) {
  auto expect_quantile = [](uint64_t bits) {
    const double z = internal_base::NormalFromBits(bits);
    const double tail = std::ldexp((bits >> 12 << 1) + 1, -54);
    const double back = std::erfc(std::abs(z) / std::sqrt(2.0)) / 2;
    // A relative error of 1e-15 in z gives a relative error of z * z * 1e-15 in
    // the tail.
    ASSERT_NEAR(back / tail, 1, 1e-15 * (1 + z * z)) << bits;
    ASSERT_EQ(std::signbit(z), (bits & 1) != 0 && z != 0) << bits;
  };
  Random random(8);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t bits = random();
    expect_quantile(bits);
    expect_quantile(bits >> (i % 52));  // small ones test the far tail
  }
  EXPECT_NEAR(internal_base::NormalFromBits(0), 8.29236107581359, 1e-13);
  EXPECT_NEAR(internal_base::NormalFromBits(1), -8.29236107581359, 1e-13);
}

TEST(Random, ExponentialHasItsDistribution) {
  Random random(10);
  constexpr int kCount = 200000;
  double sum = 0;
  int above[4] = {};
  for (int i = 0; i < kCount; ++i) {
    Random copy = random;
    const double u = static_cast<double>((copy() >> 12 << 1) + 1) * 0x1p-53;
    const double x = random.Exponential();
    ASSERT_NEAR(x, -std::log(u), 1e-15 * (1 + x));
    sum += x;
    for (int k = 0; k < 4; ++k) above[k] += x > k;
  }
  EXPECT_NEAR(sum / kCount, 1, 0.01);
  for (int k = 0; k < 4; ++k) {
    EXPECT_NEAR(above[k], kCount * std::exp(-k), 1000);
  }
}

TEST(Random, NormalHasItsMoments) {
  Random random(9);
  constexpr int kCount = 1000000;
  double sum[5] = {};
  for (int i = 0; i < kCount; ++i) {
    const double z = random.Normal();
    double power = 1;
    for (double& s : sum) {
      s += power;
      power *= z;
    }
  }
  EXPECT_NEAR(sum[1] / kCount, 0, 0.005);
  EXPECT_NEAR(sum[2] / kCount, 1, 0.007);
  EXPECT_NEAR(sum[3] / kCount, 0, 0.02);
  EXPECT_NEAR(sum[4] / kCount, 3, 0.05);
  EXPECT_NEAR(random.Normal(100, 0), 100, 0);
}

}  // namespace
}  // namespace lockstep
