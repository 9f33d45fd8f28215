#include "lockstep/base/random.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

// This file uses only +, -, *, / and sqrt, each of which IEEE 754 rounds once.
// It calls no other function of libm, because their results differ between C
// libraries. //config:defs.bzl turns off contraction.

namespace lockstep {
namespace {

uint64_t Bits(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

double FromBits(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <size_t n>
double Polynomial(const double (&coefficients)[n], double x) {
  double sum = 0;
  for (size_t i = n; i > 0; --i) sum = sum * x + coefficients[i - 1];
  return sum;
}

// Returns the natural logarithm of a positive normal number, with an error of
// about one unit in the last place. x is m * 2^e with m in [sqrt(1/2),
// sqrt(2)). log(m) is the series of 2 * artanh(f) with f = (m - 1) / (m + 1),
// and |f| is at most 0.1716.
double Log(double x) {
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  constexpr double kLn2High =
      0x1.62e42fefa38p-1;  // 42 bits, so e * kLn2High is exact
  constexpr double kLn2Low = 0x1.ef35793c7673p-45;
  constexpr double kArtanh[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,
                                1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17,
                                1.0 / 19, 1.0 / 21};
  const uint64_t bits = Bits(x);
  const int64_t exponent = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  const double m = FromBits(bits - (static_cast<uint64_t>(exponent) << 52));
  const double f = (m - 1) / (m + 1);
  const double f2 = f * f;
  const double e = static_cast<double>(exponent);
  const double rest = 2 * f * (f2 * Polynomial(kArtanh, f2)) + e * kLn2Low;
  return e * kLn2High + (2 * f + rest);
}

// The coefficients of Wichura's rational approximations of the normal quantile
// (algorithm AS 241, PPND16; Applied Statistics 37, 1988). Their error is about
// 1e-16.
constexpr double kMiddleA[] = {
    3.3871328727963666080e0,  1.3314166789178437745e+2,
    1.9715909503065514427e+3, 1.3731693765509461125e+4,
    4.5921953931549871457e+4, 6.7265770927008700853e+4,
    3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr double kMiddleB[] = {1,
                               4.2313330701600911252e+1,
                               6.8718700749205790830e+2,
                               5.3941960214247511077e+3,
                               2.1213794301586595867e+4,
                               3.9307895800092710610e+4,
                               2.8729085735721942674e+4,
                               5.2264952788528545610e+3};
constexpr double kOuterC[] = {
    1.42343711074968357734e0,  4.63033784615654529590e0,
    5.76949722146069140550e0,  3.64784832476320460504e0,
    1.27045825245236838258e0,  2.41780725177450611770e-1,
    2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr double kOuterD[] = {1,
                              2.05319162663775882187e0,
                              1.67638483018380384940e0,
                              6.89767334985100004550e-1,
                              1.48103976427480074590e-1,
                              1.51986665636164571966e-2,
                              5.47593808499534494600e-4,
                              1.05075007164441684324e-9};
constexpr double kTailE[] = {
    6.65790464350110377720e0,  5.46378491116411436990e0,
    1.78482653991729133580e0,  2.96560571828504891230e-1,
    2.65321895265761230930e-2, 1.24266094738807843860e-3,
    2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr double kTailF[] = {1,
                             5.99832206555887937690e-1,
                             1.36929880922735805310e-1,
                             1.48753612908506148525e-2,
                             7.86869131145613259100e-4,
                             1.84631831751005468180e-5,
                             1.42151175831644588870e-7,
                             2.04426310338993978564e-15};

// Returns the z > 0 that a normal number exceeds with chance `tail`. Requires:
// 0 < tail < 1/2.
double UpperQuantile(double tail) {
  const double q = 0.5 - tail;
  if (q <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(kMiddleA, r) / Polynomial(kMiddleB, r);
  }
  const double r = std::sqrt(-Log(tail));
  return r <= 5 ? Polynomial(kOuterC, r - 1.6) / Polynomial(kOuterD, r - 1.6)
                : Polynomial(kTailE, r - 5) / Polynomial(kTailF, r - 5);
}

}  // namespace

uint64_t RandomKey(uint64_t seed, uint64_t stream, uint64_t epoch) {
  return Philox(seed, {epoch, stream}).low;
}

double Random::Uniform(double low, double high) {
  if (!(low < high)) return low;
  const double value = low + Uniform() * (high - low);
  if (value < high) return value;
  // The value was rounded up to `high`. The result is the number before `high`,
  // but at least `low`.
  const uint64_t bits = Bits(high);
  const double before = high > 0   ? FromBits(bits - 1)
                        : high < 0 ? FromBits(bits + 1)
                                   : -std::numeric_limits<double>::denorm_min();
  return std::max(low, before);
}

double Random::Normal(double mean, double deviation) {
  return mean + deviation * Normal();
}

// Bit 0 is the sign. The upper 52 bits give an odd multiple of 2^-54 in (0,
// 1/2), whose distance to 1/2 is exact too.
double internal_base::NormalFromBits(uint64_t bits) {
  const double tail = static_cast<double>((bits >> 12 << 1) + 1) * 0x1p-54;
  const double z = UpperQuantile(tail);
  return (bits & 1) != 0 ? -z : z;
}

// Returns -log of a number in (0, 1), which is an odd multiple of 2^-53.
double Random::Exponential() {
  return -Log(static_cast<double>(((*this)() >> 12 << 1) + 1) * 0x1p-53);
}

// This is Lemire's method. The result is the upper half of a product. In the
// few cases that would make some results more likely than others, it draws
// again.
uint64_t Random::Below(uint64_t n) {
  if (n == 0) return 0;
  unsigned __int128 product = static_cast<unsigned __int128>((*this)()) * n;
  if (static_cast<uint64_t>(product) < n) {
    const uint64_t excess = -n % n;  // 2^64 mod n
    while (static_cast<uint64_t>(product) < excess) {
      product = static_cast<unsigned __int128>((*this)()) * n;
    }
  }
  return static_cast<uint64_t>(product >> 64);
}

int64_t Random::Integer(int64_t low, int64_t high) {
  if (low >= high) return low;
  const uint64_t width =
      static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + Below(width));
}

template <typename T, typename Convert>
void Random::FillWith(absl::Span<T> out, Convert convert) {
  size_t done = 0;
  // The first half of a block may be used already. Whole blocks follow through
  // a buffer, then the rest.
  if (draw_ % 2 != 0 && !out.empty()) out[done++] = convert((*this)());
  PhiloxBlock blocks[64];
  while (out.size() - done >= 2) {
    const size_t count = std::min<size_t>(64, (out.size() - done) / 2);
    PhiloxFill(key_, {draw_ / 2, position_}, absl::MakeSpan(blocks, count));
    for (size_t i = 0; i < count; ++i) {
      out[done + 2 * i] = convert(blocks[i].low);
      out[done + 2 * i + 1] = convert(blocks[i].high);
    }
    done += 2 * count;
    draw_ += 2 * count;
  }
  if (done < out.size()) out[done] = convert((*this)());
}

void Random::Fill(absl::Span<uint64_t> out) {
  FillWith(out, [](uint64_t bits) { return bits; });
}

void Random::FillUniform(absl::Span<double> out) { FillWith(out, ToUniform); }

void Random::FillUniform(absl::Span<float> out) {
  FillWith(out, [](uint64_t bits) {
    return static_cast<float>(bits >> 40) * 0x1p-24f;
  });
}

void Random::FillNormal(absl::Span<double> out) {
  FillWith(out, internal_base::NormalFromBits);
}

void Random::FillNormal(absl::Span<float> out) {
  FillWith(out, [](uint64_t bits) {
    return static_cast<float>(internal_base::NormalFromBits(bits));
  });
}

}  // namespace lockstep
