#include "lockstep/collective/reduce.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/collective/operation.h"

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

// Sums that are subnormal or inexact, of few elements and of many.
template <typename T>
std::vector<T> SumsOfSmallOnes(int64_t count) {
  std::vector<T> first, second;
  const double least = static_cast<double>(
      std::is_same_v<T, double>    ? std::numeric_limits<double>::min()
      : std::is_same_v<T, Float16> ? 0x1p-14
                                   : std::numeric_limits<float>::min());
  for (int64_t i = 0; i < count; ++i) {
    const bool subnormal = i % 2 == 0;
    first.push_back(static_cast<T>(subnormal ? least / 4 : 1.0));
    second.push_back(static_cast<T>(subnormal ? least / 8 : least));
  }
  std::vector<T> out(count);
  const void* const inputs[] = {first.data(), second.data()};
  void* const outs[] = {out.data()};
  ReduceInOrder(DTypeOf<T>(), ReduceOp::kSum, 1, inputs, count, outs);
  return out;
}

template <typename T>
void ExpectTheSameWhateverIsSetForFloats() {
  for (const int64_t count : {1, 2, 1000}) {
    const std::vector<T> as_ever = SumsOfSmallOnes<T>(count);
    std::fenv_t before;
    ASSERT_EQ(std::fegetenv(&before), 0);
    ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);  // flushes subnormal numbers
#endif
    const std::vector<T> set = SumsOfSmallOnes<T>(count);
    const int rounds = std::fegetround();
    std::fesetenv(&before);
    EXPECT_EQ(rounds, FE_UPWARD) << "it should be set as before";
    EXPECT_EQ(std::memcmp(set.data(), as_ever.data(), count * sizeof(T)), 0)
        << count << " elements of " << Name(DTypeOf<T>());
  }
}

TEST(Reduce, FloatModesOfTheThreadDoNotCount) {
  ExpectTheSameWhateverIsSetForFloats<float>();
  ExpectTheSameWhateverIsSetForFloats<double>();
  ExpectTheSameWhateverIsSetForFloats<Float16>();
  ExpectTheSameWhateverIsSetForFloats<BFloat16>();
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

// The tests below compare every path with this one, which takes one element at
// a time.
template <typename A>
A Combined(ReduceOp op, A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    if (std::isnan(a)) b = a;  // the first NaN counts
    switch (op) {
      case ReduceOp::kMin:
        return a < b ? a : b;
      case ReduceOp::kMax:
        return a > b ? a : b;
      case ReduceOp::kProd:
        return a * b;
      default:
        return a + b;
    }
  } else {
    const uint64_t x = static_cast<std::make_unsigned_t<A>>(a);
    const uint64_t y = static_cast<std::make_unsigned_t<A>>(b);
    switch (op) {
      case ReduceOp::kMin:
        return std::min(a, b);
      case ReduceOp::kMax:
        return std::max(a, b);
      case ReduceOp::kProd:
        return static_cast<A>(x * y);
      case ReduceOp::kBitAnd:
        return static_cast<A>(x & y);
      case ReduceOp::kBitOr:
        return static_cast<A>(x | y);
      default:
        return static_cast<A>(x + y);
    }
  }
}

// Not inlined, since compilers may multiply by 1 instead of comparing with it,
// which makes a signalling NaN quiet.
template <typename A>
[[gnu::noinline]] A Scaled(A value, A scale) {
  return static_cast<A>(value * scale);
}

template <typename T>
std::string ReduceOneByOne(ReduceOp op, double scale,
                           const std::vector<std::string>& inputs) {
  using A = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
  std::string out = inputs[0];
  for (size_t i = 0; i < out.size(); i += sizeof(T)) {
    A sum{};
    for (size_t j = 0; j < inputs.size(); ++j) {
      T element;
      std::memcpy(&element, inputs[j].data() + i, sizeof(T));
      A value = static_cast<A>(element);
      if (scale != 1) value = Scaled(value, static_cast<A>(scale));
      sum = j == 0 ? value : Combined(op, sum, value);
    }
    if (op == ReduceOp::kAvg) {
      sum = static_cast<A>(sum / static_cast<A>(inputs.size()));
    }
    const T result = static_cast<T>(sum);
    std::memcpy(out.data() + i, &result, sizeof(T));
  }
  return out;
}

std::string ReduceOneByOne(DType dtype, ReduceOp op, double scale,
                           const std::vector<std::string>& inputs) {
  switch (dtype) {
    case DType::kF64:
      return ReduceOneByOne<double>(op, scale, inputs);
    case DType::kF32:
      return ReduceOneByOne<float>(op, scale, inputs);
    case DType::kF16:
      return ReduceOneByOne<Float16>(op, scale, inputs);
    case DType::kBF16:
      return ReduceOneByOne<BFloat16>(op, scale, inputs);
    case DType::kI8:
      return ReduceOneByOne<int8_t>(op, scale, inputs);
    case DType::kI16:
      return ReduceOneByOne<int16_t>(op, scale, inputs);
    case DType::kI32:
      return ReduceOneByOne<int32_t>(op, scale, inputs);
    case DType::kI64:
      return ReduceOneByOne<int64_t>(op, scale, inputs);
    case DType::kU8:
    case DType::kBool:
      return ReduceOneByOne<uint8_t>(op, scale, inputs);
    case DType::kU16:
      return ReduceOneByOne<uint16_t>(op, scale, inputs);
    case DType::kU32:
      return ReduceOneByOne<uint32_t>(op, scale, inputs);
    case DType::kU64:
      return ReduceOneByOne<uint64_t>(op, scale, inputs);
  }
  return "";
}

constexpr ReduceOp kAllOps[] = {
    ReduceOp::kSum,  ReduceOp::kAvg,    ReduceOp::kMin,  ReduceOp::kMax,
    ReduceOp::kProd, ReduceOp::kBitAnd, ReduceOp::kBitOr};

// Reduces copies of the inputs that are `offset` bytes off the alignment of
// vectors: to separate memory, over an input, and to two outputs at once.
void ExpectEveryPathGives(const std::string& expected, DType dtype, ReduceOp op,
                          double scale, const std::vector<std::string>& inputs,
                          size_t offset) {
  const int64_t count = static_cast<int64_t>(expected.size()) / SizeOf(dtype);
  for (const auto reduce : {ReduceInOrder, ReduceInOrderPortable}) {
    for (const int over : {-1, 0, static_cast<int>(inputs.size()) - 1}) {
      for (const bool two : {false, true}) {
        std::vector<std::string> memory;
        for (const std::string& input : inputs) {
          memory.push_back(std::string(offset, 0) + input);
        }
        std::vector<std::string> own(2,
                                     std::string(offset + expected.size(), 0));
        std::vector<const void*> places;
        for (const std::string& input : memory) {
          places.push_back(input.data() + offset);
        }
        std::vector<void*> outs = {(over < 0 ? own[0] : memory[over]).data() +
                                   offset};
        if (two) outs.push_back(own[1].data() + offset);
        reduce(dtype, op, scale, places, count, outs);
        for (const void* out : outs) {
          ASSERT_EQ(std::memcmp(out, expected.data(), expected.size()), 0)
              << Name(op) << " of " << inputs.size() << " x " << count << " "
              << Name(dtype) << ", scale " << scale << ", offset " << offset
              << ", over input " << over
              << (reduce == ReduceInOrderPortable ? ", portable" : "");
        }
      }
    }
  }
}

// Returns elements of any bits. Many floats among them are special: zeros, the
// least and the largest subnormals, 1, the largest value, infinities and NaNs,
// of both signs.
std::string RandomElements(DType dtype, int64_t count,
                           std::mt19937_64& random) {
  const int64_t size = SizeOf(dtype);
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = random();
    if (dtype == DType::kBool) bits &= 1;
    if (IsFloatingPoint(dtype) && random() % 4 == 0) {
      const int mantissa = dtype == DType::kF64    ? 52
                           : dtype == DType::kF32  ? 23
                           : dtype == DType::kBF16 ? 7
                                                   : 10;
      const uint64_t sign = uint64_t{1} << (8 * size - 1);
      const uint64_t one = uint64_t{1} << mantissa;
      const uint64_t infinity = sign - one;
      const uint64_t special[] = {0,
                                  1,
                                  one - 1,
                                  one,
                                  (infinity >> 1) & infinity,
                                  infinity - 1,
                                  infinity,
                                  infinity + 1,
                                  infinity + one / 2,
                                  sign - 1};
      bits = special[bits % std::size(special)] | (random() % 2 ? sign : 0);
    }
    bytes.append(reinterpret_cast<const char*>(&bits), size);
  }
  return bytes;
}

TEST(Reduce, EveryPathGivesTheSameBits) {
  std::mt19937_64 random(1);
  std::vector<int64_t> counts(71);
  std::iota(counts.begin(), counts.end(), 0);
  counts.push_back(5003);  // several blocks
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      for (const double scale : {1.0, -0.3}) {
        if (!CheckReduction(dtype, op, scale).ok()) continue;
        for (const int64_t count : counts) {
          const int most_inputs = count < 40 || count > 70 ? 5 : 2;
          for (int ranks = 1; ranks <= most_inputs; ++ranks) {
            std::vector<std::string> inputs;
            for (int j = 0; j < ranks; ++j) {
              inputs.push_back(RandomElements(dtype, count, random));
            }
            ExpectEveryPathGives(ReduceOneByOne(dtype, op, scale, inputs),
                                 dtype, op, scale, inputs, random() % 16);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// All 65536 values are widened. They are also scaled, added and multiplied to
// floats that round up, down and to even, to subnormals, zero and infinity.
TEST(Reduce, HalvesAreConvertedAsFloat16AndBFloat16Are) {
  std::string all, mixed;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const uint16_t other = static_cast<uint16_t>(40503 * bits + 12345);
    all.append(reinterpret_cast<const char*>(&half), sizeof(half));
    mixed.append(reinterpret_cast<const char*>(&other), sizeof(other));
  }
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const double scale :
         {1.0, -1.0, 0.5, 0x1p-8, 0x1p-14, 0x1p-24, 0x1p-126, 0x1.002p0,
          0x1.004p0, 0x1.006p0, 0x1.01p0, 0x1.03p0, 0x1.ffep0, 0x1.fffffep0,
          0x1.fffffep127, 1.0 / 3, 1e-6}) {
      for (const auto& inputs : std::vector<std::vector<std::string>>{
               {all}, {all, mixed}, {all, mixed, all}}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd}) {
          ExpectEveryPathGives(ReduceOneByOne(dtype, op, scale, inputs), dtype,
                               op, scale, inputs, 0);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::internal_collective
