#include "lockstep/base/float16.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Returns the value of finite binary16 bits, directly from the definition.
double ValueOfFloat16(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 0x3ff;
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, -24)
                               : std::ldexp(1024 + mantissa, exponent - 25);
  return bits >> 15 != 0 ? -magnitude : magnitude;
}

TEST(Float16, EveryFiniteValueIsExactAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits >> 10 & 31) == 31) continue;
    const Float16 half = Float16::FromBits(static_cast<uint16_t>(bits));
    const float value = static_cast<float>(half);
    ASSERT_EQ(value, ValueOfFloat16(half.bits())) << bits;
    ASSERT_EQ(Float16(value).bits(), bits);
  }
}

// Tests the middle between each pair of neighbours. Values below it round down,
// values above it round up, and the middle itself rounds to the even neighbour.
// This covers the rounding of every float.
TEST(Float16, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const double low = ValueOfFloat16(static_cast<uint16_t>(bits));
    const double high = ValueOfFloat16(static_cast<uint16_t>(bits + 1));
    const float middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(middle, (low + high) / 2);
    for (const uint32_t sign : {0u, 0x8000u}) {
      auto rounded = [sign](float value) {
        return Float16(sign != 0 ? -value : value).bits();
      };
      ASSERT_EQ(rounded(std::nextafter(middle, 0.0f)), sign | bits);
      ASSERT_EQ(rounded(middle), sign | (bits + (bits & 1)));
      ASSERT_EQ(rounded(std::nextafter(middle, kInfinity)), sign | (bits + 1));
    }
  }
}

TEST(Float16, OverflowsFromHalfAStepBeyondTheLargest) {
  EXPECT_EQ(Float16(65504.0f).bits(), 0x7bff);
  EXPECT_EQ(Float16(std::nextafter(65520.0f, 0.0f)).bits(), 0x7bff);
  EXPECT_EQ(Float16(65520.0f).bits(), 0x7c00);
  EXPECT_EQ(Float16(-1e30f).bits(), 0xfc00);
  EXPECT_EQ(Float16(kInfinity).bits(), 0x7c00);
  EXPECT_EQ(static_cast<float>(Float16::FromBits(0xfc00)), -kInfinity);
}

TEST(Float16, NanStaysNanWithItsSign) {
  for (uint32_t mantissa = 1; mantissa < 0x400; ++mantissa) {
    const auto bits = static_cast<uint16_t>(0xfc00 | mantissa);
    const float value = static_cast<float>(Float16::FromBits(bits));
    ASSERT_TRUE(std::isnan(value));
    ASSERT_TRUE(std::signbit(value));
    ASSERT_EQ(Float16(value).bits(), bits | 0x200);
  }
  // A NaN whose payload does not fit into 10 bits must not become infinity.
  const float low = internal_base::FloatFromBits(0x7f800001);
  EXPECT_EQ(Float16(low).bits(), 0x7e00);
}

TEST(BFloat16, EveryValueIsExactAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 brain = BFloat16::FromBits(static_cast<uint16_t>(bits));
    const float value = static_cast<float>(brain);
    if (std::isnan(value)) {
      ASSERT_EQ(BFloat16(value).bits(), bits | 0x40);
      continue;
    }
    ASSERT_EQ(internal_base::FloatBits(value), bits << 16);
    ASSERT_EQ(BFloat16(value).bits(), bits);
  }
}

TEST(BFloat16, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7f80) == 0x7f80) continue;
    const uint32_t middle = bits << 16 | 0x8000;
    auto rounded = [](uint32_t float_bits) {
      return BFloat16(internal_base::FloatFromBits(float_bits)).bits();
    };
    ASSERT_EQ(rounded(middle - 1), bits);
    ASSERT_EQ(rounded(middle), bits + (bits & 1));
    ASSERT_EQ(rounded(middle + 1), bits + 1);
  }
}

TEST(BFloat16, NanStaysNan) {
  EXPECT_EQ(BFloat16(internal_base::FloatFromBits(0x7f800001)).bits(), 0x7fc0);
  EXPECT_EQ(BFloat16(internal_base::FloatFromBits(0xffffffff)).bits(), 0xffff);
}

}  // namespace
}  // namespace lockstep
