#include "lockstep/gradients/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/random.h"

namespace lockstep::internal_gradients {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <typename T>
T Of(double value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    return T(static_cast<float>(value));
  }
}

template <typename T>
double From(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else {
    return static_cast<float>(value);
  }
}

template <typename T>
std::vector<T> RandomValues(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<T> values(count);
  for (T& value : values) value = Of<T>(random.Uniform(-8, 8));
  return values;
}

template <typename T>
class ArithmeticTest : public testing::Test {};
using Types = testing::Types<double, float, Float16, BFloat16>;
TYPED_TEST_SUITE(ArithmeticTest, Types);

// The lengths around those that the loops take at a time.
constexpr int64_t kCounts[] = {0, 1, 15, 16, 17, 63, 64, 65, 1000, 4096};

// Calls Add with sums of type To, and expects plain sums.
template <typename From, typename To>
void ExpectAdds() {
  for (const int64_t count : kCounts) {
    const auto from = RandomValues<From>(count, 3);
    std::vector<To> to = RandomValues<To>(count + 1, 4);
    std::vector<To> expected = to;
    for (int64_t i = 0; i < count; ++i) {
      expected[i] +=
          static_cast<To>(lockstep::internal_gradients::From(from[i]));
    }
    Add(DTypeOf<From>(), from.data(), DTypeOf<To>(), to.data(), count);
    EXPECT_EQ(to, expected) << Name(DTypeOf<From>()) << " x " << count;
  }
}

TEST(Add, AddsEachElement) {
  ExpectAdds<double, double>();
  ExpectAdds<float, float>();
  ExpectAdds<float, double>();
  ExpectAdds<Float16, float>();
  ExpectAdds<BFloat16, float>();
  ExpectAdds<BFloat16, double>();
}

TEST(Add, TheFirstNaNWins) {
  for (const int64_t count : {1, 64, 100}) {
    std::vector<uint32_t> from(count, 0x7fc00001), to(count, 0x7fc00002);
    std::vector<float> value(count, 1);
    Add(DType::kF32, from.data(), DType::kF32, to.data(), count);
    EXPECT_THAT(to, testing::Each(0x7fc00002));
    Add(DType::kF32, value.data(), DType::kF32, to.data(), count);
    EXPECT_THAT(to, testing::Each(0x7fc00002));
    Add(DType::kF32, from.data(), DType::kF32, value.data(), count);
    EXPECT_EQ(std::memcmp(value.data(), from.data(), count * sizeof(float)), 0);
  }
}

#if defined(__x86_64__)
// A trainer's thread may have set modes that the transports' threads have not.
TEST(Add, ModesOfTheThreadHaveNoInfluence) {
  constexpr unsigned kFlushes = 0x8040, kRoundsUp = 0x4000;
  const unsigned before = _mm_getcsr();
  for (const unsigned modes : {0U, kFlushes, kRoundsUp}) {
    std::vector<float> to = {1e-40F, 1.0F}, from = {1e-40F, 1e-9F};
    _mm_setcsr(before | modes);
    Add(DType::kF32, from.data(), DType::kF32, to.data(), 2);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_EQ(after & modes, modes);
    EXPECT_EQ(to[0], from[0] * 2);
    EXPECT_EQ(to[1], 1.0F);
  }
}
#endif

TYPED_TEST(ArithmeticTest, DividesEachElementAndAddsUpSquares) {
  for (const int64_t count : kCounts) {
    for (const double divisor : {1.0, 3.0, 64.0, 16777217.0, 0.1}) {
      const auto from = RandomValues<TypeParam>(count, 7);
      std::vector<TypeParam> to(count + 1, Of<TypeParam>(5));
      const double squares =
          Divide(DTypeOf<TypeParam>(), from.data(), DTypeOf<TypeParam>(),
                 to.data(), count, divisor);
      double expected = 0;
      for (int64_t i = 0; i < count; ++i) {
        const double mean = From(Of<TypeParam>(From(from[i]) / divisor));
        EXPECT_EQ(From(to[i]), mean) << i << " of " << count << ", " << divisor;
        expected += mean * mean;
      }
      EXPECT_NEAR(squares, expected, 1e-12 * expected);
      EXPECT_EQ(From(to[count]), 5) << "nothing behind them is written";
    }
  }
}

TYPED_TEST(ArithmeticTest, OneValueThatIsNotFiniteIsFound) {
  for (const double bad : {kInfinity, -kInfinity, kNan}) {
    for (int64_t at = 0; at < 200; at += 17) {
      auto values = RandomValues<TypeParam>(200, 8);
      const DType dtype = DTypeOf<TypeParam>();
      EXPECT_TRUE(AllAreFinite(dtype, values.data(), 200));
      values[at] = Of<TypeParam>(bad);
      EXPECT_FALSE(AllAreFinite(dtype, values.data(), 200));
      EXPECT_FALSE(std::isfinite(
          Divide(dtype, values.data(), dtype, values.data(), 200, 2)));
    }
  }
}

TYPED_TEST(ArithmeticTest, OneValueThatIsNotZeroIsFound) {
  std::vector<TypeParam> values(200, Of<TypeParam>(0));
  values[3] = Of<TypeParam>(-0.0);
  const DType dtype = DTypeOf<TypeParam>();
  EXPECT_TRUE(AllAreZero(dtype, values.data(), 200));
  for (const double value : {1e-4, kNan}) {
    values[199] = Of<TypeParam>(value);
    EXPECT_FALSE(AllAreZero(dtype, values.data(), 200));
    EXPECT_TRUE(AllAreZero(dtype, values.data(), 199));
  }
}

TYPED_TEST(ArithmeticTest, Multiplies) {
  for (const int64_t count : kCounts) {
    auto values = RandomValues<TypeParam>(count, 9);
    const auto before = values;
    Multiply(DTypeOf<TypeParam>(), values.data(), count, 0.25);
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(From(values[i]), From(Of<TypeParam>(From(before[i]) * 0.25)));
    }
  }
}

TYPED_TEST(ArithmeticTest, ConvertsToAndFromF32) {
  for (const int64_t count : kCounts) {
    const auto from = RandomValues<TypeParam>(count, 10);
    std::vector<float> wide(count);
    Convert(DTypeOf<TypeParam>(), from.data(), DType::kF32, wide.data(), count);
    std::vector<TypeParam> back(count);
    Convert(DType::kF32, wide.data(), DTypeOf<TypeParam>(), back.data(), count);
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(wide[i], static_cast<float>(From(from[i])));
      EXPECT_EQ(From(back[i]), From(Of<TypeParam>(wide[i])));
    }
  }
}

TEST(Arithmetic, SumsThatTravelAsF32BecomeMeansOfF16) {
  // The sum is above the largest f16, and the mean is not.
  const std::vector<float> sums = {80000, -80000, 1};
  std::vector<Float16> means(3);
  const double squares =
      Divide(DType::kF32, sums.data(), DType::kF16, means.data(), 3, 16);
  EXPECT_EQ(static_cast<float>(means[0]), 5000);
  EXPECT_EQ(static_cast<float>(means[1]), -5000);
  EXPECT_EQ(static_cast<float>(means[2]), 0.0625F);
  EXPECT_EQ(squares, 2 * 5000.0 * 5000 + 0.0625 * 0.0625);
  EXPECT_FALSE(std::isfinite(
      Divide(DType::kF32, sums.data(), DType::kF16, means.data(), 3, 1)));
}

TEST(Arithmetic, ADivisorThatIsNoFloatIsNotRounded) {
  const float sum = 16777216;  // 2^24; a float can't be 2^24 + 1
  float mean = 0;
  Divide(DType::kF32, &sum, DType::kF32, &mean, 1, 16777217);
  EXPECT_EQ(mean, static_cast<float>(16777216.0 / 16777217.0));
  EXPECT_NE(mean, 1);
}

TEST(Arithmetic, SquaresAreAddedInOneOrder) {
  // A change of the order would change the bits of norms.
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<float> values = RandomValues<float>(4096, seed);
    double lanes[16] = {};
    for (size_t i = 0; i < values.size(); ++i) {
      lanes[i % 16] += static_cast<double>(values[i]) * values[i];
    }
    for (int width = 8; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    EXPECT_EQ(
        Divide(DType::kF32, values.data(), DType::kF32, values.data(), 4096, 1),
        lanes[0]);
  }
}

TEST(TreeSum, IsATreeOfPairs) {
  const double a = 1, b = 1e-16, c = 3e-16, d = 7, e = 0.1;
  TreeSum sum;
  EXPECT_EQ(sum.Total(), 0);
  for (const double value : {a, b, c, d, e}) sum.Add(value);
  EXPECT_EQ(sum.Total(), ((a + b) + (c + d)) + e);
  sum.Add(a);
  sum.Add(b);
  EXPECT_EQ(sum.Total(), ((a + b) + (c + d)) + ((e + a) + b));
}

}  // namespace
}  // namespace lockstep::internal_gradients
