#include "lockstep/collective/reduce.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/float16.h"

namespace lockstep::internal_collective {
namespace {

template <typename T>
T ReduceAll(ReduceOp op, std::vector<T> inputs, double scale = 1) {
  std::vector<const void*> places;
  for (const T& input : inputs) places.push_back(&input);
  T out{};
  void* const to[] = {&out};
  ReduceInOrder(DTypeOf<T>(), op, scale, places, 1, to);
  return out;
}

TEST(Reduce, IntegersWrap) {
  EXPECT_EQ(ReduceAll<int8_t>(ReduceOp::kSum, {127, 1}), -128);
  EXPECT_EQ(ReduceAll<int32_t>(ReduceOp::kProd, {1 << 30, 4}), 0);
  EXPECT_EQ(ReduceAll<int64_t>(ReduceOp::kSum,
                               {std::numeric_limits<int64_t>::max(), 1}),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(ReduceAll<uint16_t>(ReduceOp::kProd, {65535, 65535, 65535}), 65535);
}

TEST(Reduce, SignedNumbersCompareAsSuch) {
  EXPECT_EQ(ReduceAll<int32_t>(ReduceOp::kMin, {3, -5, 4}), -5);
  EXPECT_EQ(ReduceAll<int8_t>(ReduceOp::kMax, {-3, -5, -4}), -3);
}

TEST(Reduce, NaNWinsWhereverItIs) {
  const float nan = std::nanf("");
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_TRUE(std::isnan(ReduceAll<float>(op, {nan, 1, 2})));
    EXPECT_TRUE(std::isnan(ReduceAll<float>(op, {1, nan, 2})));
    EXPECT_TRUE(std::isnan(ReduceAll<float>(op, {1, 2, nan})));
  }
}

// 2048 + 1 + 1 in f16 is 2048 when each step is rounded, and 2050 when one is.
TEST(Reduce, HalvesAreRoundedOnce) {
  EXPECT_EQ(static_cast<float>(ReduceAll<Float16>(
                ReduceOp::kSum, {Float16(2048), Float16(1), Float16(1)})),
            2050);
  EXPECT_EQ(static_cast<float>(ReduceAll<BFloat16>(
                ReduceOp::kSum, {BFloat16(256), BFloat16(1), BFloat16(1)})),
            258);
}

TEST(Reduce, InTheOrderOfRanks) {
  // Another order gives another sum.
  EXPECT_EQ(ReduceAll<float>(ReduceOp::kSum, {1e8f, -1e8f, 1}), 1);
  EXPECT_EQ(ReduceAll<float>(ReduceOp::kSum, {1, 1e8f, -1e8f}), 0);
}

TEST(Reduce, ScalesInputsAndAverages) {
  EXPECT_EQ(ReduceAll<double>(ReduceOp::kSum, {1, 2}, 0.25), 0.75);
  EXPECT_EQ(ReduceAll<float>(ReduceOp::kAvg, {1, 2, 6}, 2), 6);
  EXPECT_EQ(ReduceAll<float>(ReduceOp::kMax, {1, 2}, -1), -1);
}

TEST(Reduce, TakesMemoryAtAnyAddress) {
  std::vector<char> bytes(2 * sizeof(double) + 1);
  char* const odd = bytes.data() + 1;
  const double value = 3;
  std::memcpy(odd, &value, sizeof(value));
  const void* const in[] = {odd, odd};
  void* const out[] = {odd};
  ReduceInOrder(DType::kF64, ReduceOp::kSum, 1, in, 1, out);
  double sum;
  std::memcpy(&sum, odd, sizeof(sum));
  EXPECT_EQ(sum, 6);
}

}  // namespace
}  // namespace lockstep::internal_collective
