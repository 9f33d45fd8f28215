#include "lockstep/loader/images/weighted_sums.h"

// LOCKSTEP_PLAIN_SUMS is for tests.
#if defined(__x86_64__) && !defined(LOCKSTEP_PLAIN_SUMS)
#define LOCKSTEP_AVX2_SUMS
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "lockstep/loader/images/resize_weights.h"

namespace lockstep::internal_loader {
namespace {

constexpr int kBits = ResizeWeights::kBits;
constexpr int kLowBits = ResizeWeights::kLowBits;

// The bytes of rows that are added up at a time.
constexpr int kBlock = 32;

// Returns the byte of a sum, whose parts may have overflowed by multiples of
// 2^32.
uint8_t ByteOf(uint32_t high, uint32_t low) {
  const uint32_t sum = (high << kLowBits) + low + (1U << (kBits - 1));
  const int32_t value = static_cast<int32_t>(sum) >> kBits;
  return static_cast<uint8_t>(std::clamp(value, 0, 255));
}

uint32_t First(int32_t pair) {
  return static_cast<uint32_t>(static_cast<int16_t>(pair));
}
uint32_t Second(int32_t pair) { return static_cast<uint32_t>(pair >> 16); }

void SumPixelPlain(const ResizeWeights& weights,
                   const ResizeWeights::Pixel& pixel, const uint8_t* from,
                   uint8_t* to) {
  const int32_t* const high = weights.high() + pixel.weights;
  const int32_t* const low = weights.low() + pixel.weights;
  for (int c = 0; c < 3; ++c) {
    uint32_t high_sum = 0;
    uint32_t low_sum = 0;
    for (int32_t i = 0; i < pixel.pairs; ++i) {
      const uint32_t a = from[i * 8 + c];
      const uint32_t b = from[i * 8 + 4 + c];
      high_sum += a * First(high[i]) + b * Second(high[i]);
      low_sum += a * First(low[i]) + b * Second(low[i]);
    }
    to[c] = ByteOf(high_sum, low_sum);
  }
}

void SumPixelsPlain(const ResizeWeights& weights, const uint8_t* from,
                    bool mirror, uint8_t* to) {
  const std::vector<ResizeWeights::Pixel>& pixels = weights.pixels();
  const size_t count = pixels.size();
  for (size_t i = 0; i < count; ++i, to += 3) {
    const ResizeWeights::Pixel& pixel = pixels[mirror ? count - 1 - i : i];
    SumPixelPlain(weights, pixel, from + (pixel.first - weights.begin()) * 4,
                  to);
  }
}

void SumBlockPlain(const ResizeWeights& weights,
                   const ResizeWeights::Pixel& pixel,
                   const uint8_t* const* from, int64_t at, uint8_t* to) {
  const int32_t* const high = weights.high() + pixel.weights;
  const int32_t* const low = weights.low() + pixel.weights;
  uint32_t high_sums[kBlock] = {};
  uint32_t low_sums[kBlock] = {};
  for (int32_t i = 0; i < pixel.pairs; ++i) {
    const uint8_t* const a = from[2 * i] + at;
    const uint8_t* const b = from[2 * i + 1] + at;
    for (int c = 0; c < kBlock; ++c) {
      high_sums[c] += a[c] * First(high[i]) + b[c] * Second(high[i]);
      low_sums[c] += a[c] * First(low[i]) + b[c] * Second(low[i]);
    }
  }
  for (int c = 0; c < kBlock; ++c) to[c] = ByteOf(high_sums[c], low_sums[c]);
}

// The functions for a kind of processors.
struct Functions {
  decltype(&SumPixelsPlain) sum_pixels;
  decltype(&SumBlockPlain) sum_block;
};

#ifdef LOCKSTEP_AVX2_SUMS

// The same with AVX2, which nearly every x86-64 has.
#define LOCKSTEP_TARGET_AVX2 __attribute__((target("avx2")))

// Returns the bytes of sums of 32 bits, whose parts are given.
LOCKSTEP_TARGET_AVX2 inline __m256i Rounded(__m256i high, __m256i low) {
  const __m256i half = _mm256_set1_epi32(1 << (kBits - 1));
  const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, kLowBits), low);
  return _mm256_srai_epi32(_mm256_add_epi32(sum, half), kBits);
}

// Returns the weights of two pairs, each of which is there four times.
LOCKSTEP_TARGET_AVX2 inline __m256i WeightsOf(const int32_t* two) {
  const __m128i both = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(two));
  return _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(both),
                                     _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

// Always a part of its caller, which cleans up the vector registers.
LOCKSTEP_TARGET_AVX2 __attribute__((always_inline)) inline void SumPixelAvx2(
    const ResizeWeights& weights, const ResizeWeights::Pixel& pixel,
    const uint8_t* from, uint8_t* to) {
  // Two pairs of pixels at a time, one in each half of a register: their bytes
  // become words, and the words of a colour become neighbours.
  const __m256i places = _mm256_setr_epi8(
      0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1,  //
      8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1);
  const int32_t* const high = weights.high() + pixel.weights;
  const int32_t* const low = weights.low() + pixel.weights;
  __m256i high_sums = _mm256_setzero_si256();
  __m256i low_sums = _mm256_setzero_si256();
  for (int32_t i = 0; i < pixel.pairs; i += 2, from += 16) {
    const __m128i bytes =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m256i pairs =
        _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), places);
    high_sums = _mm256_add_epi32(high_sums,
                                 _mm256_madd_epi16(pairs, WeightsOf(high + i)));
    low_sums = _mm256_add_epi32(low_sums,
                                _mm256_madd_epi16(pairs, WeightsOf(low + i)));
  }
  // The halves are added up.
  high_sums = _mm256_add_epi32(
      high_sums, _mm256_permute2x128_si256(high_sums, high_sums, 1));
  low_sums = _mm256_add_epi32(low_sums,
                              _mm256_permute2x128_si256(low_sums, low_sums, 1));
  const __m128i sums = _mm256_castsi256_si128(Rounded(high_sums, low_sums));
  const __m128i words = _mm_packs_epi32(sums, sums);
  const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  std::memcpy(to, &bytes, sizeof bytes);
}

LOCKSTEP_TARGET_AVX2 void SumPixelsAvx2(const ResizeWeights& weights,
                                        const uint8_t* from, bool mirror,
                                        uint8_t* to) {
  const std::vector<ResizeWeights::Pixel>& pixels = weights.pixels();
  const size_t count = pixels.size();
  for (size_t i = 0; i < count; ++i, to += 3) {
    const ResizeWeights::Pixel& pixel = pixels[mirror ? count - 1 - i : i];
    SumPixelAvx2(weights, pixel, from + (pixel.first - weights.begin()) * 4,
                 to);
  }
  // Otherwise, later SSE code is slow: GCC does this only from -O2 on.
  _mm256_zeroupper();
}

// Four of these add up 32 bytes.
struct EightSums {
  __m256i high;
  __m256i low;
};

LOCKSTEP_TARGET_AVX2 inline void Add(__m256i pairs, __m256i high, __m256i low,
                                     EightSums& sums) {
  sums.high = _mm256_add_epi32(sums.high, _mm256_madd_epi16(pairs, high));
  sums.low = _mm256_add_epi32(sums.low, _mm256_madd_epi16(pairs, low));
}

LOCKSTEP_TARGET_AVX2 void SumBlockAvx2(const ResizeWeights& weights,
                                       const ResizeWeights::Pixel& pixel,
                                       const uint8_t* const* from, int64_t at,
                                       uint8_t* to) {
  const int32_t* const high = weights.high() + pixel.weights;
  const int32_t* const low = weights.low() + pixel.weights;
  const __m256i zero = _mm256_setzero_si256();
  EightSums sums[4] = {{zero, zero}, {zero, zero}, {zero, zero}, {zero, zero}};
  for (int32_t i = 0; i < pixel.pairs; ++i) {
    const __m256i a =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from[2 * i] + at));
    const __m256i b = _mm256_loadu_si256(
        reinterpret_cast<const __m256i*>(from[2 * i + 1] + at));
    const __m256i high_weights = _mm256_set1_epi32(high[i]);
    const __m256i low_weights = _mm256_set1_epi32(low[i]);
    const __m256i left = _mm256_unpacklo_epi8(a, b);
    const __m256i right = _mm256_unpackhi_epi8(a, b);
    Add(_mm256_unpacklo_epi8(left, zero), high_weights, low_weights, sums[0]);
    Add(_mm256_unpackhi_epi8(left, zero), high_weights, low_weights, sums[1]);
    Add(_mm256_unpacklo_epi8(right, zero), high_weights, low_weights, sums[2]);
    Add(_mm256_unpackhi_epi8(right, zero), high_weights, low_weights, sums[3]);
  }
  // Packing undoes what unpacking did to the order.
  const __m256i left = _mm256_packs_epi32(Rounded(sums[0].high, sums[0].low),
                                          Rounded(sums[1].high, sums[1].low));
  const __m256i right = _mm256_packs_epi32(Rounded(sums[2].high, sums[2].low),
                                           Rounded(sums[3].high, sums[3].low));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_packus_epi16(left, right));
  _mm256_zeroupper();
}

Functions FunctionsOfProcessor() {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return {SumPixelsAvx2, SumBlockAvx2};
  return {SumPixelsPlain, SumBlockPlain};
}

#else

Functions FunctionsOfProcessor() { return {SumPixelsPlain, SumBlockPlain}; }

#endif

}  // namespace

void SumAcross(const ResizeWeights& weights, const uint8_t* from, bool mirror,
               uint8_t* to) {
  FunctionsOfProcessor().sum_pixels(weights, from, mirror, to);
}

void SumDown(const ResizeWeights& weights, const ResizeWeights::Pixel& pixel,
             const uint8_t* const* from, int64_t bytes, uint8_t* to) {
  const auto sum_block = FunctionsOfProcessor().sum_block;
  int64_t at = 0;
  for (; at + kBlock <= bytes; at += kBlock) {
    sum_block(weights, pixel, from, at, to + at);
  }
  if (at == bytes) return;
  uint8_t last[kBlock];
  sum_block(weights, pixel, from, at, last);
  std::memcpy(to + at, last, static_cast<size_t>(bytes - at));
}

}  // namespace lockstep::internal_loader
