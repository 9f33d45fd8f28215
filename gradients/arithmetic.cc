#include "lockstep/gradients/arithmetic.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/base/attributes.h"
#include "lockstep/base/check.h"
#include "lockstep/base/default_floats.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"

namespace lockstep::internal_gradients {
namespace {

// Squares are added up in this number of lanes, and then the lanes.
constexpr int kLanes = 16;

// The elements that are converted at a time. They stay in registers or in the
// first-level cache.
constexpr int64_t kChunk = 64;
static_assert(kChunk % kLanes == 0);

// Calls `function` with a value of the C++ type of a float type.
template <typename Function>
auto WithType(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::kF64:
      return function(double{0});
    case DType::kF32:
      return function(0.0F);
    case DType::kF16:
      return function(Float16());
    default:
      LOCKSTEP_CHECK(dtype == DType::kBF16);
      return function(BFloat16());
  }
}

// The type in which elements of To are computed.
template <typename To>
using WideOf = std::conditional_t<std::is_same_v<To, double>, double, float>;

// The memory of users may have any alignment.
template <typename From, typename Wide>
void Load(const From* from, int64_t count, Wide* values) {
  if constexpr (std::is_same_v<From, Wide>) {
    std::memcpy(values, from, count * sizeof(From));
  } else {
    From chunk[kChunk];
    std::memcpy(chunk, from, count * sizeof(From));
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_arithmetic_v<From>) {
        values[i] = static_cast<Wide>(chunk[i]);
      } else {
        values[i] = static_cast<Wide>(static_cast<float>(chunk[i]));
      }
    }
  }
}

template <typename To, typename Wide>
void Store(const Wide* values, int64_t count, To* to) {
  if constexpr (std::is_same_v<To, Wide>) {
    std::memcpy(to, values, count * sizeof(To));
  } else {
    To chunk[kChunk];
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_arithmetic_v<To>) {
        chunk[i] = static_cast<To>(values[i]);
      } else {
        chunk[i] = To(static_cast<float>(values[i]));
      }
    }
    std::memcpy(to, chunk, count * sizeof(To));
  }
}

// Rounds once where the divisor is a float, as all up to 2^24 are, and so are
// these times a power of 2.
template <typename Wide>
void DivideChunk(Wide* values, int64_t count, double divisor) {
  if (divisor <= double{std::numeric_limits<Wide>::max()} &&
      double{static_cast<Wide>(divisor)} == divisor) {
    const auto exact = static_cast<Wide>(divisor);
    for (int64_t i = 0; i < count; ++i) values[i] /= exact;
  } else {
    for (int64_t i = 0; i < count; ++i) {
      values[i] = static_cast<Wide>(static_cast<double>(values[i]) / divisor);
    }
  }
}

// Adds the squares of a chunk, whose end is filled with zeros, to the lanes.
template <typename Wide>
void AddSquares(const Wide* values, double* lanes) {
  for (int64_t i = 0; i < kChunk; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
}

#if defined(__x86_64__)

// Adds the squares of eight floats to eight lanes, in two registers.
__attribute__((target("avx2"))) inline void AddSquaresAvx2(__m256 values,
                                                           __m256d& first,
                                                           __m256d& last) {
  const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(values));
  const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(values, 1));
  first = _mm256_add_pd(first, _mm256_mul_pd(a, a));
  last = _mm256_add_pd(last, _mm256_mul_pd(b, b));
}

// Divides as many whole groups of kLanes floats as there are, and adds their
// squares to the lanes. If `kMultiplies` is true, it multiplies by `by`
// instead. Returns the number of these floats. The results have the same bits
// as without these instructions.
template <bool kMultiplies>
__attribute__((target("avx2"))) int64_t DivideAvx2(const float* from, float* to,
                                                   int64_t count, float by,
                                                   double* lanes) {
  const __m256 all = _mm256_set1_ps(by);
  __m256d sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = _mm256_loadu_pd(lanes + 4 * i);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    __m256 low = _mm256_loadu_ps(from + i);
    __m256 high = _mm256_loadu_ps(from + i + 8);
    if constexpr (kMultiplies) {
      low = _mm256_mul_ps(low, all);
      high = _mm256_mul_ps(high, all);
    } else {
      low = _mm256_div_ps(low, all);
      high = _mm256_div_ps(high, all);
    }
    _mm256_storeu_ps(to + i, low);
    _mm256_storeu_ps(to + i + 8, high);
    AddSquaresAvx2(low, sums[0], sums[1]);
    AddSquaresAvx2(high, sums[2], sums[3]);
  }
  for (int j = 0; j < 4; ++j) _mm256_storeu_pd(lanes + 4 * j, sums[j]);
  // Otherwise, later SSE code is slow: GCC does this only from -O2 on.
  _mm256_zeroupper();
  return i;
}
static_assert(kLanes == 16, "DivideAvx2 has four registers of four lanes");

#endif

// Does the same if it can, and returns 0 otherwise.
int64_t DivideFast(const float* from, float* to, int64_t count, double divisor,
                   double* lanes) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  constexpr double kMost = std::numeric_limits<float>::max();
  if (!has_avx2 || divisor > kMost ||
      double{static_cast<float>(divisor)} != divisor) {
    return 0;
  }
  // The reciprocal of a power of 2 is exact, and a product is faster.
  int exponent = 0;
  const bool is_power =
      std::frexp(divisor, &exponent) == 0.5 && std::abs(exponent) < 100;
  return is_power ? DivideAvx2<true>(from, to, count,
                                     static_cast<float>(1 / divisor), lanes)
                  : DivideAvx2<false>(from, to, count,
                                      static_cast<float>(divisor), lanes);
#else
  static_cast<void>(from), static_cast<void>(to), static_cast<void>(count);
  static_cast<void>(divisor), static_cast<void>(lanes);
  return 0;
#endif
}

template <typename From, typename To>
double DivideAs(const From* from, To* to, int64_t count, double divisor) {
  using Wide = WideOf<To>;
  double lanes[kLanes] = {};
  int64_t done = 0;
  if constexpr (std::is_same_v<From, float> && std::is_same_v<To, float>) {
    done = DivideFast(from, to, count, divisor, lanes);
  }
  for (int64_t at = done; at < count; at += kChunk) {
    const int64_t now = count - at < kChunk ? count - at : kChunk;
    Wide values[kChunk];
    if (now < kChunk) std::memset(values, 0, sizeof(values));
    Load(from + at, now, values);
    DivideChunk(values, now, divisor);
    Store(values, now, to + at);
    if constexpr (!std::is_same_v<To, Wide>) Load(to + at, now, values);
    AddSquares(values, lanes);
  }
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

// Not inlined, so that no addition moves to where other modes are set.
template <typename From, typename To>
ABSL_ATTRIBUTE_NOINLINE void AddAs(const From* from, To* to, int64_t count) {
  for (int64_t at = 0; at < count; at += kChunk) {
    const int64_t now = count - at < kChunk ? count - at : kChunk;
    To sums[kChunk], values[kChunk];
    Load(to + at, now, sums);
    Load(from + at, now, values);
    for (int64_t i = 0; i < now; ++i) {
      // A NaN is added to itself, since a compiler may exchange the operands.
      const To second = sums[i] != sums[i] ? sums[i] : values[i];
      sums[i] += second;
    }
    Store(sums, now, to + at);
  }
}

template <typename T, typename Function>
bool All(const T* values, int64_t count, const Function& holds) {
  for (int64_t at = 0; at < count; at += kChunk) {
    const int64_t now = count - at < kChunk ? count - at : kChunk;
    WideOf<T> chunk[kChunk];
    Load(values + at, now, chunk);
    bool all = true;
    for (int64_t i = 0; i < now; ++i) all &= holds(chunk[i]);
    if (!all) return false;
  }
  return true;
}

}  // namespace

void Convert(DType from_type, const void* from, DType to_type, void* to,
             int64_t count) {
  if (from_type == to_type) {
    if (count > 0) std::memcpy(to, from, count * SizeOf(to_type));
    return;
  }
  WithType(from_type, [&](auto from_value) {
    WithType(to_type, [&](auto to_value) {
      using From = decltype(from_value);
      using To = decltype(to_value);
      for (int64_t at = 0; at < count; at += kChunk) {
        const int64_t now = count - at < kChunk ? count - at : kChunk;
        WideOf<To> values[kChunk];
        Load(static_cast<const From*>(from) + at, now, values);
        Store(values, now, static_cast<To*>(to) + at);
      }
    });
  });
}

void Add(DType from_type, const void* from, DType to_type, void* to,
         int64_t count) {
  const DefaultFloats floats;
  WithType(from_type, [&](auto from_value) {
    using From = decltype(from_value);
    if (to_type == DType::kF64) {
      AddAs(static_cast<const From*>(from), static_cast<double*>(to), count);
    } else if constexpr (!std::is_same_v<From, double>) {
      LOCKSTEP_CHECK(to_type == DType::kF32);
      AddAs(static_cast<const From*>(from), static_cast<float*>(to), count);
    }
  });
}

double Divide(DType from_type, const void* from, DType to_type, void* to,
              int64_t count, double divisor) {
  return WithType(from_type, [&](auto from_value) {
    return WithType(to_type, [&](auto to_value) {
      return DivideAs(static_cast<const decltype(from_value)*>(from),
                      static_cast<decltype(to_value)*>(to), count, divisor);
    });
  });
}

void Multiply(DType dtype, void* values, int64_t count, double factor) {
  WithType(dtype, [&](auto value) {
    using T = decltype(value);
    using Wide = WideOf<T>;
    T* const data = static_cast<T*>(values);
    const auto by = static_cast<Wide>(factor);
    for (int64_t at = 0; at < count; at += kChunk) {
      const int64_t now = count - at < kChunk ? count - at : kChunk;
      Wide chunk[kChunk];
      Load(data + at, now, chunk);
      for (int64_t i = 0; i < now; ++i) chunk[i] *= by;
      Store(chunk, now, data + at);
    }
  });
}

bool AllAreZero(DType dtype, const void* values, int64_t count) {
  return WithType(dtype, [&](auto value) {
    return All(static_cast<const decltype(value)*>(values), count,
               [](auto each) { return each == 0; });
  });
}

bool AllAreFinite(DType dtype, const void* values, int64_t count) {
  return WithType(dtype, [&](auto value) {
    return All(static_cast<const decltype(value)*>(values), count,
               [](auto each) { return std::isfinite(each); });
  });
}

void TreeSum::Add(double value) {
  int level = 0;
  for (uint64_t bits = count_++; bits & 1; bits >>= 1) {
    value = sums_[level++] + value;
  }
  sums_[level] = value;
}

double TreeSum::Total() const {
  double total = 0;
  for (int level = 0; level < 64; ++level) {
    if (count_ >> level & 1) total = sums_[level] + total;
  }
  return total;
}

}  // namespace lockstep::internal_gradients
