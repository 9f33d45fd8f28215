#include "lockstep/tools/gpu_check/known_numbers.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr int64_t kCount = 1000;
constexpr DType kFloats[] = {DType::kF64, DType::kF32, DType::kF16,
                             DType::kBF16};

TEST(KnownNumbers, DependOnStreamAndRank) {
  for (const DType dtype : kFloats) {
    const std::string numbers = KnownNumbers(dtype, 1, 0, kCount);
    EXPECT_EQ(numbers.size(), kCount * SizeOf(dtype));
    EXPECT_EQ(numbers, KnownNumbers(dtype, 1, 0, kCount));
    EXPECT_NE(numbers, KnownNumbers(dtype, 2, 0, kCount));
    EXPECT_NE(numbers, KnownNumbers(dtype, 1, 1, kCount));
  }
}

TEST(KnownNumbers, HaveAllBitsSignsAndMagnitudes) {
  const std::string bytes = KnownNumbers(DType::kF64, 1, 0, kCount);
  double least = 1, most = 1;
  int negative = 0, inexact = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    double number;
    std::memcpy(&number, bytes.data() + i * sizeof(number), sizeof(number));
    least = std::fmin(least, std::abs(number));
    most = std::fmax(most, std::abs(number));
    negative += number < 0 ? 1 : 0;
    inexact += number != static_cast<float>(number) ? 1 : 0;
  }
  EXPECT_GE(least, 0.125);
  EXPECT_LT(least, 0.25);
  EXPECT_LT(most, 32);
  EXPECT_GE(most, 16);
  EXPECT_GT(negative, kCount / 3);
  EXPECT_LT(negative, kCount * 2 / 3);
  EXPECT_GT(inexact, kCount * 9 / 10);
}

TEST(Means, AcceptsTheSumOfOneRankAsItIs) {
  for (const DType dtype : kFloats) {
    const std::string numbers = KnownNumbers(dtype, 1, 0, kCount);
    Means means(dtype, kCount);
    means.Add(numbers);
    LOCKSTEP_EXPECT_OK(means.Compare(1, numbers));
    EXPECT_EQ(means.largest_error(), 0);
  }
}

TEST(Means, WithoutAddendsAreZero) {
  const Means none(DType::kF32, 2);
  Means means = none;
  LOCKSTEP_EXPECT_OK(means.Compare(3, std::string(8, '\0')));
  EXPECT_FALSE(means.Compare(3, KnownNumbers(DType::kF32, 1, 0, 2)).ok());
}

// Returns how Compare takes `value` where the mean of 10 and 20 with the weight
// 3 is due, which is 10.
absl::Status CompareTenWith(float value) {
  Means means(DType::kF32, 1);
  for (const float addend : {10.0F, 20.0F}) {
    std::string bytes(sizeof(addend), '\0');
    std::memcpy(bytes.data(), &addend, sizeof(addend));
    means.Add(bytes);
  }
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return means.Compare(3, bytes);
}

TEST(Means, AcceptsRoundingAlone) {
  constexpr float kEpsilon = std::numeric_limits<float>::epsilon();
  LOCKSTEP_EXPECT_OK(CompareTenWith(10));
  LOCKSTEP_EXPECT_OK(CompareTenWith(10 * (1 + 3 * kEpsilon)));
  LOCKSTEP_EXPECT_OK(CompareTenWith(10 * (1 - 3 * kEpsilon)));
  EXPECT_FALSE(CompareTenWith(10 * (1 + 6 * kEpsilon)).ok());
  EXPECT_FALSE(CompareTenWith(10 * (1 - 6 * kEpsilon)).ok());
  EXPECT_FALSE(CompareTenWith(std::nanf("")).ok());
  EXPECT_FALSE(CompareTenWith(std::numeric_limits<float>::infinity()).ok());
  EXPECT_THAT(CompareTenWith(11).message(),
              HasSubstr("element 0 of 1 x f32 is 11 and not 10"));
}

}  // namespace
}  // namespace lockstep
