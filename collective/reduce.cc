#include "lockstep/collective/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "absl/base/attributes.h"
#include "lockstep/base/check.h"
#include "lockstep/base/default_floats.h"
#include "lockstep/base/float16.h"

namespace lockstep::internal_collective {
namespace {

// The number of elements that are accumulated at a time. All arrays of a block
// should stay in the first-level cache.
constexpr int64_t kBlock = 1024;
// The same if no accumulator is needed: the result should still be in the cache
// when it is copied to the other outputs.
constexpr int64_t kDirectBlock = 4096;

// The type in which elements of T are accumulated: float for f16 and bf16, and
// T itself for all others.
template <typename T>
using AccumulatorOf = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

// Unsigned types for integers, since these wrap, while signed ones must not
// overflow.
template <typename T, bool = std::is_integral_v<T>>
struct WrappingOf {
  using Type = std::make_unsigned_t<T>;
};
template <typename T>
struct WrappingOf<T, false> {
  using Type = T;
};
template <typename T>
using Wrapping = typename WrappingOf<T>::Type;

// A vector that every processor has, or that the compiler composes.
template <typename A>
struct VectorOf {
  typedef A Type __attribute__((vector_size(16)));
};
template <typename A>
using Vector = typename VectorOf<A>::Type;

template <typename A>
constexpr int64_t kLanes = sizeof(Vector<A>) / sizeof(A);

// Returns the address of element i. It may have any alignment, since the user's
// memory may.
template <typename T>
const char* At(const void* data, int64_t i) {
  return static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof(T));
}
template <typename T>
char* At(void* data, int64_t i) {
  return static_cast<char*>(data) + i * static_cast<int64_t>(sizeof(T));
}

// Returns the `count` elements of T from the i-th one on, in the first lanes.
template <typename T, typename A>
Vector<A> Read(const void* data, int64_t i, int64_t count) {
  Vector<A> values{};
  if constexpr (std::is_same_v<T, A>) {
    std::memcpy(&values, At<T>(data, i), count * sizeof(T));
  } else {
    for (int64_t lane = 0; lane < count; ++lane) {
      T value;
      std::memcpy(&value, At<T>(data, i + lane), sizeof(T));
      values[lane] = static_cast<A>(value);
    }
  }
  return values;
}

template <typename T, typename A>
void Write(Vector<A> values, int64_t count, void* data, int64_t i) {
  if constexpr (std::is_same_v<T, A>) {
    std::memcpy(At<T>(data, i), &values, count * sizeof(T));
  } else {
    for (int64_t lane = 0; lane < count; ++lane) {
      const T value(values[lane]);
      std::memcpy(At<T>(data, i + lane), &value, sizeof(T));
    }
  }
}

#if defined(__x86_64__)

#define LOCKSTEP_TARGET_AVX2 __attribute__((target("avx2,f16c")))

bool HasAvx2() {
  // Some compilers' __builtin_cpu_supports do not know "f16c".
  unsigned eax, ebx, ecx, edx;
  return __builtin_cpu_supports("avx2") &&
         __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// Sixteen elements as floats: the first eight and the last eight. For bf16,
// which is split most easily into the halves of 32-bit lanes, these are the
// elements at even and at odd places. Floats that are combined with bf16 have
// this order, too: they are constants, or were made here.
struct Floats {
  __m256 first;
  __m256 last;
};

// Reads sixteen elements of T. A signalling NaN of f16 becomes quiet. This has
// no effect on results, since WriteSixteen makes every NaN of f16 quiet.
template <typename T>
LOCKSTEP_TARGET_AVX2 inline Floats ReadSixteen(const void* data, int64_t i) {
  const char* const from = At<T>(data, i);
  if constexpr (std::is_same_v<T, float>) {
    const float* const floats = reinterpret_cast<const float*>(from);
    return {_mm256_loadu_ps(floats), _mm256_loadu_ps(floats + 8)};
  } else if constexpr (std::is_same_v<T, Float16>) {
    const __m128i* const halves = reinterpret_cast<const __m128i*>(from);
    return {_mm256_cvtph_ps(_mm_loadu_si128(halves)),
            _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
  } else {
    const __m256i halves =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(halves, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(halves, upper))};
  }
}

LOCKSTEP_TARGET_AVX2 inline bool HasNaN(Floats values) {
  return _mm256_movemask_ps(
             _mm256_cmp_ps(values.first, values.last, _CMP_UNORD_Q)) != 0;
}

// Returns the 16-bit lanes at even places from `a`, and those at odd places
// from `b`.
LOCKSTEP_TARGET_AVX2 inline __m256i Interleave(__m256i a, __m256i b) {
  return _mm256_blend_epi16(a, b, 0xaa);
}

// Returns BFloat16(value) of each value, in their order in memory.
LOCKSTEP_TARGET_AVX2 inline __m256i BFloat16s(Floats values) {
  const __m256i first = _mm256_castps_si256(values.first);
  const __m256i last = _mm256_castps_si256(values.last);
  const __m256i upper = Interleave(_mm256_srli_epi32(first, 16), last);
  const __m256i lower = Interleave(first, _mm256_slli_epi32(last, 16));
  // Rounds up if the lower half is more than 0x8000, or if it is 0x8000 and the
  // upper half is odd.
  const __m256i even = _mm256_andnot_si256(upper, _mm256_set1_epi16(1));
  const __m256i up = _mm256_srli_epi16(_mm256_subs_epu16(lower, even), 15);
  const __m256i rounded = _mm256_add_epi16(upper, up);
  if (!HasNaN(values)) return rounded;
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi16(0x40));
  const __m256 first_is_nan =
      _mm256_cmp_ps(values.first, values.first, _CMP_UNORD_Q);
  const __m256 last_is_nan =
      _mm256_cmp_ps(values.last, values.last, _CMP_UNORD_Q);
  return _mm256_blendv_epi8(rounded, quiet,
                            Interleave(_mm256_castps_si256(first_is_nan),
                                       _mm256_castps_si256(last_is_nan)));
}

template <typename T>
LOCKSTEP_TARGET_AVX2 inline void WriteSixteen(Floats values, void* data,
                                              int64_t i) {
  char* const to = At<T>(data, i);
  if constexpr (std::is_same_v<T, float>) {
    float* const floats = reinterpret_cast<float*>(to);
    _mm256_storeu_ps(floats, values.first);
    _mm256_storeu_ps(floats + 8, values.last);
  } else if constexpr (std::is_same_v<T, Float16>) {
    __m128i* const halves = reinterpret_cast<__m128i*>(to);
    _mm_storeu_si128(halves,
                     _mm256_cvtps_ph(values.first, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(halves + 1,
                     _mm256_cvtps_ph(values.last, _MM_FROUND_TO_NEAREST_INT));
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), BFloat16s(values));
  }
}

// Defines one of the operations below for vectors of AVX2.
#define LOCKSTEP_AVX2_OPERATION(expression)                          \
  LOCKSTEP_TARGET_AVX2 __m256 operator()(__m256 a, __m256 b) const { \
    return expression;                                               \
  }

#else

#define LOCKSTEP_AVX2_OPERATION(expression)

#endif  // defined(__x86_64__)

// The operations on vectors. Min and Max return `b` if it is NaN.
struct Sum {
  template <typename V>
  V operator()(V a, V b) const {
    return a + b;
  }
  LOCKSTEP_AVX2_OPERATION(_mm256_add_ps(a, b))
};

struct Product {
  template <typename V>
  V operator()(V a, V b) const {
    return a * b;
  }
  LOCKSTEP_AVX2_OPERATION(_mm256_mul_ps(a, b))
};

struct Quotient {
  template <typename V>
  V operator()(V a, V b) const {
    return a / b;
  }
  LOCKSTEP_AVX2_OPERATION(_mm256_div_ps(a, b))
};

struct Min {
  template <typename V>
  V operator()(V a, V b) const {
    return a < b ? a : b;
  }
  LOCKSTEP_AVX2_OPERATION(_mm256_min_ps(a, b))
};

struct Max {
  template <typename V>
  V operator()(V a, V b) const {
    return a > b ? a : b;
  }
  LOCKSTEP_AVX2_OPERATION(_mm256_max_ps(a, b))
};

struct BitAnd {
  template <typename V>
  V operator()(V a, V b) const {
    return a & b;
  }
};

struct BitOr {
  template <typename V>
  V operator()(V a, V b) const {
    return a | b;
  }
};

// Does nothing; for conversions alone.
struct First {
  template <typename V>
  V operator()(V a, V b) const {
    return a;
  }
  LOCKSTEP_AVX2_OPERATION(a)
};

#if defined(__x86_64__)

// Returns a op b. If both are NaN, the result is the first one.
template <typename Op>
LOCKSTEP_TARGET_AVX2 inline __m256 CombineEight(__m256 a, __m256 b) {
  // Compares integers, since Clang 14 would compare floats that were f16 one at
  // a time.
  const __m256i magnitude =
      _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff));
  const __m256i a_is_nan =
      _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
  return Op()(a, _mm256_blendv_ps(b, a, _mm256_castsi256_ps(a_is_nan)));
}

// True if the result is NaN whenever an operand is.
template <typename Op>
constexpr bool kKeepsNaN = !std::is_same_v<Op, Min> && !std::is_same_v<Op, Max>;

// Does CombineEight for both halves. The usual case, in which no result is NaN,
// takes a shorter way.
template <typename Op>
LOCKSTEP_TARGET_AVX2 inline Floats CombineSixteen(Floats a, Floats b) {
  if constexpr (kKeepsNaN<Op>) {
    const Floats result = {Op()(a.first, b.first), Op()(a.last, b.last)};
    if (!HasNaN(result)) return result;
  }
  return {CombineEight<Op>(a.first, b.first), CombineEight<Op>(a.last, b.last)};
}

// Does Combine for as many elements as fill whole vectors, and returns their
// number.
template <typename Op, typename X, typename Y, typename Out>
LOCKSTEP_TARGET_AVX2 int64_t CombineAvx2(const void* x, const void* y,
                                         int64_t count, void* out) {
  int64_t i = 0;
  for (; count - i >= 16; i += 16) {
    const Floats a = ReadSixteen<X>(x, i);
    const Floats b = ReadSixteen<Y>(y, i);
    WriteSixteen<Out>(CombineSixteen<Op>(a, b), out, i);
  }
  // Otherwise, later SSE code is slow: GCC does this only from -O2 on.
  _mm256_zeroupper();
  return i;
}

#endif  // defined(__x86_64__)

// Sets out[i] = x[i] op y[i] for elements of types X, Y and Out, computed in
// their accumulator. `out` may be x or y.
//
// If both are NaN, the result is the first one. So no bit depends on the order
// in which a compiler passes the operands to the processor.
template <typename Op, typename X, typename Y, typename Out>
void Combine(bool avx2, const void* x, const void* y, int64_t count,
             void* out) {
  using A = AccumulatorOf<X>;
  int64_t i = 0;
#if defined(__x86_64__)
  if constexpr (std::is_same_v<A, float>) {
    if (avx2) i = CombineAvx2<Op, X, Y, Out>(x, y, count, out);
  }
#endif
  const auto step = [&](int64_t lanes) {
    const Vector<A> a = Read<X, A>(x, i, lanes);
    Vector<A> b = Read<Y, A>(y, i, lanes);
    if constexpr (std::is_floating_point_v<A>) b = a != a ? a : b;
    Write<Out, A>(Op()(a, b), lanes, out, i);
  };
  for (; count - i >= kLanes<A>; i += kLanes<A>) step(kLanes<A>);
  if (i < count) step(count - i);
}

struct Arguments {
  ReduceOp op;
  double scale;
  absl::Span<const void* const> inputs;
  int64_t count;
  absl::Span<void* const> outs;
  bool avx2;
};

// Reduces `count` elements from `first` on, at most kBlock, to `out`.
template <typename T, typename Op>
void ReduceBlock(const Arguments& args, int64_t first, int64_t count,
                 void* out) {
  using A = AccumulatorOf<T>;
  A sum[kBlock];
  A value[kBlock];
  A constant[kBlock];
  const bool avx2 = args.avx2;
  const auto input = [&](size_t j) { return At<T>(args.inputs[j], first); };
  if (args.scale != 1) {
    std::fill_n(constant, count, static_cast<A>(args.scale));
    Combine<Product, T, A, A>(avx2, input(0), constant, count, sum);
    for (size_t j = 1; j < args.inputs.size(); ++j) {
      Combine<Product, T, A, A>(avx2, input(j), constant, count, value);
      Combine<Op, A, A, A>(avx2, sum, value, count, sum);
    }
  } else if (args.inputs.size() == 1) {
    Combine<First, T, T, A>(avx2, input(0), input(0), count, sum);
  } else {
    Combine<Op, T, T, A>(avx2, input(0), input(1), count, sum);
    for (size_t j = 2; j < args.inputs.size(); ++j) {
      Combine<Op, A, T, A>(avx2, sum, input(j), count, sum);
    }
  }
  if constexpr (std::is_floating_point_v<A>) {
    if (args.op == ReduceOp::kAvg) {
      std::fill_n(constant, count, static_cast<A>(args.inputs.size()));
      Combine<Quotient, A, A, A>(avx2, sum, constant, count, sum);
    }
  }
  Combine<First, A, A, T>(avx2, sum, sum, count, out);
}

template <typename T, typename Op>
void ReduceBy(const Arguments& args) {
  // The usual case needs no accumulator.
  const bool direct =
      args.inputs.size() == 2 && args.scale == 1 && args.op != ReduceOp::kAvg;
  const int64_t block = direct ? kDirectBlock : kBlock;
  for (int64_t first = 0; first < args.count; first += block) {
    const int64_t count = std::min(block, args.count - first);
    void* const out = At<T>(args.outs[0], first);
    if (direct) {
      Combine<Op, T, T, T>(args.avx2, At<T>(args.inputs[0], first),
                           At<T>(args.inputs[1], first), count, out);
    } else {
      ReduceBlock<T, Op>(args, first, count, out);
    }
    for (void* other : args.outs.subspan(1)) {
      std::memcpy(At<T>(other, first), out, count * sizeof(T));
    }
  }
}

template <typename T>
void ReduceAs(const Arguments& args) {
  switch (args.op) {
    case ReduceOp::kMin:
      return ReduceBy<T, Min>(args);
    case ReduceOp::kMax:
      return ReduceBy<T, Max>(args);
    case ReduceOp::kProd:
      return ReduceBy<Wrapping<T>, Product>(args);
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
      if constexpr (std::is_integral_v<T>) {
        return args.op == ReduceOp::kBitAnd
                   ? ReduceBy<Wrapping<T>, BitAnd>(args)
                   : ReduceBy<Wrapping<T>, BitOr>(args);
      }
      break;
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return ReduceBy<Wrapping<T>, Sum>(args);
  }
}

// Not inlined, so that no computation moves to where other modes are set.
ABSL_ATTRIBUTE_NOINLINE void Reduce(DType dtype, const Arguments& args) {
  LOCKSTEP_CHECK(!args.inputs.empty() && !args.outs.empty());
  switch (dtype) {
    case DType::kF64:
      return ReduceAs<double>(args);
    case DType::kF32:
      return ReduceAs<float>(args);
    case DType::kF16:
      return ReduceAs<Float16>(args);
    case DType::kBF16:
      return ReduceAs<BFloat16>(args);
    case DType::kI8:
      return ReduceAs<int8_t>(args);
    case DType::kI16:
      return ReduceAs<int16_t>(args);
    case DType::kI32:
      return ReduceAs<int32_t>(args);
    case DType::kI64:
      return ReduceAs<int64_t>(args);
    case DType::kU8:
    case DType::kBool:  // 0 and 1
      return ReduceAs<uint8_t>(args);
    case DType::kU16:
      return ReduceAs<uint16_t>(args);
    case DType::kU32:
      return ReduceAs<uint32_t>(args);
    case DType::kU64:
      return ReduceAs<uint64_t>(args);
  }
}

}  // namespace

void ReduceInOrder(DType dtype, ReduceOp op, double scale,
                   absl::Span<const void* const> inputs, int64_t count,
                   absl::Span<void* const> outs) {
#if defined(__x86_64__)
  static const bool avx2 = HasAvx2();
#else
  constexpr bool avx2 = false;
#endif
  const DefaultFloats floats;
  Reduce(dtype, {op, scale, inputs, count, outs, avx2});
}

void ReduceInOrderPortable(DType dtype, ReduceOp op, double scale,
                           absl::Span<const void* const> inputs, int64_t count,
                           absl::Span<void* const> outs) {
  const DefaultFloats floats;
  Reduce(dtype, {op, scale, inputs, count, outs, /*avx2=*/false});
}

}  // namespace lockstep::internal_collective
