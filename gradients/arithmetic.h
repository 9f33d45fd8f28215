// The arithmetic on gradients in the host's memory. Its results have the same
// bits on every machine, with every compiler. Internal.
#ifndef LOCKSTEP_GRADIENTS_ARITHMETIC_H_
#define LOCKSTEP_GRADIENTS_ARITHMETIC_H_

#include <array>
#include <cstdint>

#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_gradients {

// Sets to[i] = from[i] in another type, or copies it. Both types are floats.
void Convert(DType from_type, const void* from, DType to_type, void* to,
             int64_t count);

// Sets to[i] += from[i]. If both are NaN, to[i] stays what it is. The
// floating-point modes of the calling thread have no influence.
// Requires: to_type is kF64, or it is kF32 and from_type is not kF64.
void Add(DType from_type, const void* from, DType to_type, void* to,
         int64_t count);

// Sets to[i] = from[i] / divisor, and returns the sum of the squares of the new
// values. It is not finite if and only if one of these is not, or if one of
// type f64 is so large that its square is none. Both may be the same memory.
// Elements are added in an order that depends on nothing but their number.
// Requires: `count` is at most kBlock, so that callers add up blocks.
double Divide(DType from_type, const void* from, DType to_type, void* to,
              int64_t count, double divisor);

// Sets values[i] *= factor.
void Multiply(DType dtype, void* values, int64_t count, double factor);

// Returns true if all values are 0, or -0.
bool AllAreZero(DType dtype, const void* values, int64_t count);

// Returns true if no value is infinite or NaN.
bool AllAreFinite(DType dtype, const void* values, int64_t count);

// Adds up numbers in pairs, pairs of pairs, and so on: a tree whose shape
// depends on their number alone. Its error grows with the logarithm of it.
// Thread-safety: thread-compatible.
class TreeSum {
 public:
  void Add(double value);
  double Total() const;

 private:
  // sums_[k] is the sum of 2^k numbers, if bit k of count_ is set.
  std::array<double, 64> sums_;
  uint64_t count_ = 0;
};

}  // namespace lockstep::internal_gradients

#endif  // LOCKSTEP_GRADIENTS_ARITHMETIC_H_
