#include "lockstep/loader/images/resize_weights.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lockstep/loader/images/image_options.h"

namespace lockstep::internal_loader {
namespace {

constexpr int kPrecision = 22;  // the bits of a weight behind the point
constexpr int kLowBits = 11;    // those of its low part
constexpr int32_t kLowMask = (1 << kLowBits) - 1;

// A weight, by the distance from the new pixel's place.
double Bilinear(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}
double Bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0.0;
}

// Rounds a weight to a multiple of 2^-22.
int32_t RoundWeight(double weight) {
  const double scaled = weight * (1 << kPrecision);
  return static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

int32_t Pair(int32_t first, int32_t second) {
  return static_cast<int32_t>((static_cast<uint32_t>(first) & 0xFFFF) |
                              static_cast<uint32_t>(second) << 16);
}

#ifdef __x86_64__

// Four sums at a time, with what every x86-64 has.
struct FourSums {
  __m128i high = _mm_setzero_si128();
  __m128i low = _mm_setzero_si128();

  // `pairs` has eight numbers of 16 bits, two for each sum.
  void Add(__m128i pairs, __m128i high_weights, __m128i low_weights) {
    high = _mm_add_epi32(high, _mm_madd_epi16(pairs, high_weights));
    low = _mm_add_epi32(low, _mm_madd_epi16(pairs, low_weights));
  }

  __m128i Rounded() const {
    const __m128i half = _mm_set1_epi32(1 << (kPrecision - 1));
    return _mm_srai_epi32(
        _mm_add_epi32(_mm_add_epi32(_mm_slli_epi32(high, kLowBits), low), half),
        kPrecision);
  }
};

// Returns bytes 0, 4, 1, 5 and so on of two pixels as numbers of 16 bits.
__m128i TwoPixels(const uint8_t* from) {
  const __m128i both = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return _mm_unpacklo_epi8(_mm_unpacklo_epi8(both, _mm_srli_si128(both, 4)),
                           _mm_setzero_si128());
}

void SumPixel(const ResizeWeights& weights, const ResizeWeights::Pixel& pixel,
              const uint8_t* from, uint8_t* to) {
  const int32_t* const high = weights.high() + pixel.weights;
  const int32_t* const low = weights.low() + pixel.weights;
  FourSums sums;
  for (int32_t i = 0; i < pixel.pairs; ++i, from += 8) {
    sums.Add(TwoPixels(from), _mm_set1_epi32(high[i]), _mm_set1_epi32(low[i]));
  }
  const __m128i words = _mm_packs_epi32(sums.Rounded(), sums.Rounded());
  const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  std::memcpy(to, &bytes, sizeof bytes);
}

// Sums up 16 bytes of each row.
void SumSixteen(const ResizeWeights& weights, const ResizeWeights::Pixel& pixel,
                const uint8_t* const* from, int64_t at, uint8_t* to) {
  const int32_t* const high = weights.high() + pixel.weights;
  const int32_t* const low = weights.low() + pixel.weights;
  const __m128i zero = _mm_setzero_si128();
  FourSums sums[4];
  for (int32_t i = 0; i < pixel.pairs; ++i) {
    const __m128i a =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from[2 * i] + at));
    const __m128i b =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from[2 * i + 1] + at));
    const __m128i high_weights = _mm_set1_epi32(high[i]);
    const __m128i low_weights = _mm_set1_epi32(low[i]);
    const __m128i left = _mm_unpacklo_epi8(a, b);
    const __m128i right = _mm_unpackhi_epi8(a, b);
    sums[0].Add(_mm_unpacklo_epi8(left, zero), high_weights, low_weights);
    sums[1].Add(_mm_unpackhi_epi8(left, zero), high_weights, low_weights);
    sums[2].Add(_mm_unpacklo_epi8(right, zero), high_weights, low_weights);
    sums[3].Add(_mm_unpackhi_epi8(right, zero), high_weights, low_weights);
  }
  const __m128i bytes =
      _mm_packus_epi16(_mm_packs_epi32(sums[0].Rounded(), sums[1].Rounded()),
                       _mm_packs_epi32(sums[2].Rounded(), sums[3].Rounded()));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}

#else

// Returns the byte of a sum, whose parts may have overflowed by multiples of
// 2^32.
uint8_t ByteOf(uint32_t high, uint32_t low) {
  const uint32_t sum = (high << kLowBits) + low + (1U << (kPrecision - 1));
  const int32_t value = static_cast<int32_t>(sum) >> kPrecision;
  return static_cast<uint8_t>(std::clamp(value, 0, 255));
}

uint32_t First(int32_t pair) {
  return static_cast<uint32_t>(static_cast<int16_t>(pair));
}
uint32_t Second(int32_t pair) { return static_cast<uint32_t>(pair >> 16); }

void SumPixel(const ResizeWeights& weights, const ResizeWeights::Pixel& pixel,
              const uint8_t* from, uint8_t* to) {
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

void SumSixteen(const ResizeWeights& weights, const ResizeWeights::Pixel& pixel,
                const uint8_t* const* from, int64_t at, uint8_t* to) {
  const int32_t* const high = weights.high() + pixel.weights;
  const int32_t* const low = weights.low() + pixel.weights;
  uint32_t high_sums[16] = {};
  uint32_t low_sums[16] = {};
  for (int32_t i = 0; i < pixel.pairs; ++i) {
    const uint8_t* const a = from[2 * i] + at;
    const uint8_t* const b = from[2 * i + 1] + at;
    for (int c = 0; c < 16; ++c) {
      high_sums[c] += a[c] * First(high[i]) + b[c] * Second(high[i]);
      low_sums[c] += a[c] * First(low[i]) + b[c] * Second(low[i]);
    }
  }
  for (int c = 0; c < 16; ++c) to[c] = ByteOf(high_sums[c], low_sums[c]);
}

#endif

}  // namespace

void ResizeWeights::Compute(const ResizeAxis& axis, ImageFilter filter) {
  const bool cubic = filter == ImageFilter::kBicubic;
  const double scale =
      static_cast<double>(axis.in) / static_cast<double>(axis.out);
  const double stretch = std::max(scale, 1.0);
  const double support = (cubic ? 2.0 : 1.0) * stretch;
  const double step = 1.0 / stretch;
  pixels_.clear();
  high_.clear();
  low_.clear();
  begin_ = axis.in;
  end_ = 0;
  most_ = 0;
  for (int64_t i = 0; i < axis.count; ++i) {
    const double center = (static_cast<double>(axis.first + i) + 0.5) * scale;
    // These are rounded towards 0, before negative ones become 0.
    const int64_t first =
        std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t end =
        std::min(static_cast<int64_t>(center + support + 0.5), axis.in);
    exact_.clear();
    double sum = 0.0;
    for (int64_t at = first; at < end; ++at) {
      const double x = (static_cast<double>(at) - center + 0.5) * step;
      const double weight = cubic ? Bicubic(x) : Bilinear(x);
      exact_.push_back(weight);
      sum += weight;
    }
    Pixel pixel;
    pixel.first = static_cast<int32_t>(first);
    pixel.count = static_cast<int32_t>(end - first);
    pixel.pairs = (pixel.count + 1) / 2;
    pixel.weights = high_.size();
    exact_.resize(static_cast<size_t>(pixel.pairs) * 2);
    for (size_t at = 0; at < exact_.size(); at += 2) {
      const int32_t a = RoundWeight(sum != 0 ? exact_[at] / sum : 0);
      const int32_t b = RoundWeight(sum != 0 ? exact_[at + 1] / sum : 0);
      high_.push_back(Pair(a >> kLowBits, b >> kLowBits));
      low_.push_back(Pair(a & kLowMask, b & kLowMask));
    }
    pixels_.push_back(pixel);
    begin_ = std::min(begin_, first);
    end_ = std::max(end_, end);
    most_ = std::max(most_, end - first);
  }
}

void SumAcross(const ResizeWeights& weights, const uint8_t* from, bool mirror,
               uint8_t* to) {
  const std::vector<ResizeWeights::Pixel>& pixels = weights.pixels();
  const size_t count = pixels.size();
  for (size_t i = 0; i < count; ++i, to += 3) {
    const ResizeWeights::Pixel& pixel = pixels[mirror ? count - 1 - i : i];
    SumPixel(weights, pixel, from + (pixel.first - weights.begin()) * 4, to);
  }
}

void SumDown(const ResizeWeights& weights, const ResizeWeights::Pixel& pixel,
             const uint8_t* const* from, int64_t bytes, uint8_t* to) {
  int64_t at = 0;
  for (; at + 16 <= bytes; at += 16) {
    SumSixteen(weights, pixel, from, at, to + at);
  }
  if (at == bytes) return;
  uint8_t last[16];
  SumSixteen(weights, pixel, from, at, last);
  std::memcpy(to + at, last, static_cast<size_t>(bytes - at));
}

}  // namespace lockstep::internal_loader
