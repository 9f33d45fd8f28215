// The two 16-bit floating-point types. They are for storage and exchange;
// arithmetic happens in float.
//
//   Float16 half(0.1f);                        // IEEE 754 binary16
//   float back = static_cast<float>(half);     // 0.0999755859375
//   BFloat16 brain = BFloat16::FromBits(0x3f80);  // 1.0
//
// Conversion from float rounds to nearest, ties to even. Values that are too
// large become infinity. A NaN becomes a quiet NaN with the same sign.
// Conversion to float is exact.
#ifndef LOCKSTEP_BASE_FLOAT16_H_
#define LOCKSTEP_BASE_FLOAT16_H_

#include <cstdint>
#include <cstring>

#include "lockstep/base/language.h"

namespace lockstep {
namespace internal_base {

inline uint32_t FloatBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Returns `bits` without the `dropped` lowest bits, rounded to nearest, ties to
// even.
inline uint32_t ShiftRightRounded(uint32_t bits, int dropped) {
  const uint32_t odd = (bits >> dropped) & 1;
  return (bits + (uint32_t{1} << (dropped - 1)) - 1 + odd) >> dropped;
}

inline uint16_t Float16Bits(float value) {
  const uint32_t bits = FloatBits(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half;
  if (magnitude > 0x7f800000) {  // NaN: keep the upper bits, make it quiet
    half = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  } else if (magnitude >= 0x477ff000) {  // from 65520 on
    half = 0x7c00;
  } else if (magnitude >= 0x38800000) {  // from 2^-14 on: normal
    half = ShiftRightRounded(magnitude - (uint32_t{112} << 23), 13);
  } else if (magnitude >= 0x33000000) {  // from 2^-25 on: subnormal
    const int exponent = static_cast<int>(magnitude >> 23);
    const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    half = ShiftRightRounded(mantissa, 126 - exponent);
  } else {
    half = 0;
  }
  return static_cast<uint16_t>(sign | half);
}

inline float FloatFromFloat16Bits(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) {  // infinity or NaN
    return FloatFromBits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  }
  if (magnitude >= 0x400) {  // normal
    return FloatFromBits(sign | ((magnitude << 13) + (uint32_t{112} << 23)));
  }
  // Subnormal: a multiple of 2^-24, exact in float.
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return FloatFromBits(sign | FloatBits(value));
}

inline uint16_t BFloat16Bits(float value) {
  const uint32_t bits = FloatBits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) {
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  }
  return static_cast<uint16_t>(ShiftRightRounded(bits, 16));
}

}  // namespace internal_base

// IEEE 754 binary16.
// Thread-safety: thread-compatible.
class Float16 {
 public:
  Float16() = default;
  explicit Float16(float value) : bits_(internal_base::Float16Bits(value)) {}
  explicit operator float() const {
    return internal_base::FloatFromFloat16Bits(bits_);
  }

  static Float16 FromBits(uint16_t bits) {
    Float16 value;
    value.bits_ = bits;
    return value;
  }
  uint16_t bits() const { return bits_; }

 private:
  uint16_t bits_ = 0;
};

// The upper half of a float.
// Thread-safety: thread-compatible.
class BFloat16 {
 public:
  BFloat16() = default;
  explicit BFloat16(float value) : bits_(internal_base::BFloat16Bits(value)) {}
  explicit operator float() const {
    return internal_base::FloatFromBits(static_cast<uint32_t>(bits_) << 16);
  }

  static BFloat16 FromBits(uint16_t bits) {
    BFloat16 value;
    value.bits_ = bits;
    return value;
  }
  uint16_t bits() const { return bits_; }

 private:
  uint16_t bits_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_FLOAT16_H_
