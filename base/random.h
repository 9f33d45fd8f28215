// Random generates random numbers that are the same on every machine.
//
//   Random random(RandomKey(seed, stream, epoch), position);
//   double crop = random.Uniform(0.8, 1.0);
//   bool flip = random.Below(2) == 1;
//   float noise = static_cast<float>(random.Normal());
//
// The numbers depend only on the key, the position and the number of draws
// before. They have the same bits with every compiler, optimization level, C
// library and processor. The distributions of the standard library do not have
// this property. Random is a UniformRandomBitGenerator, so it can feed them
// where equal bits do not matter.
#ifndef LOCKSTEP_BASE_RANDOM_H_
#define LOCKSTEP_BASE_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/base/philox.h"

namespace lockstep {

// Returns a key that is different for each stream of numbers. Every bit of
// every argument counts, and the arguments are not interchangeable: seed 1 at
// epoch 0 has nothing to do with seed 0 at epoch 1.
uint64_t RandomKey(uint64_t seed, uint64_t stream, uint64_t epoch);

namespace internal_base {
// Converts the 64 bits of one draw to a normal number.
double NormalFromBits(uint64_t bits);
}  // namespace internal_base

// Guarantees: A draw is 64 random bits. Uniform, Normal and Exponential take
// one draw. Below(n) and Integer take one too, and a further one with a chance
// below n / 2^64. FillX(out) gives the same numbers as X() for each element in
// turn, but faster. The constructor allocates nothing and does no work.
// Thread-safety: thread-compatible. A copy is cheap, and continues from the
// same draw.
class Random {
 public:
  explicit Random(uint64_t key, uint64_t position = 0)
      : key_(key), position_(position) {}

  // These make it a UniformRandomBitGenerator.
  using result_type = uint64_t;
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() {
    return std::numeric_limits<uint64_t>::max();
  }
  uint64_t operator()() {
    const bool second = draw_ % 2 != 0;
    if (!second) block_ = Philox(key_, {draw_ / 2, position_});
    ++draw_;
    return second ? block_.high : block_.low;
  }

  // Returns the number of draws that were taken.
  uint64_t draws() const { return draw_; }

  // Returns a number in [0, 1) that is a multiple of 2^-53.
  double Uniform() { return ToUniform((*this)()); }

  // Returns a number in [low, high), or `low` if the range is empty. Requires:
  // `low`, `high` and their difference are finite.
  double Uniform(double low, double high);

  // Returns a number with mean 0 and standard deviation 1. Its magnitude is at
  // most 8.3.
  double Normal() { return internal_base::NormalFromBits((*this)()); }
  double Normal(double mean, double deviation);

  // Returns a positive number with mean 1. It is at most 37.
  double Exponential();

  // Returns a number in [0, n), each with equal chance, or 0 if n is 0.
  uint64_t Below(uint64_t n);

  // Returns a number in [low, high), each with equal chance, or `low` if the
  // range is empty.
  int64_t Integer(int64_t low, int64_t high);

  // Permutes `values`; each order has equal chance. Takes size - 1 calls of
  // Below, and settles the last place first.
  template <typename T>
  void Shuffle(absl::Span<T> values) {
    for (size_t left = values.size(); left > 1; --left) {
      using std::swap;
      swap(values[left - 1], values[Below(left)]);
    }
  }

  // Fills `out` with draws.
  void Fill(absl::Span<uint64_t> out);

  // These call Uniform() or Normal() for each element. A uniform float is
  // rounded down to a multiple of 2^-24, so it stays below 1. A normal float is
  // rounded to nearest.
  void FillUniform(absl::Span<double> out);
  void FillUniform(absl::Span<float> out);
  void FillNormal(absl::Span<double> out);
  void FillNormal(absl::Span<float> out);

 private:
  static double ToUniform(uint64_t bits) {
    return static_cast<double>(bits >> 11) * 0x1p-53;
  }

  template <typename T, typename Convert>
  void FillWith(absl::Span<T> out, Convert convert);

  uint64_t key_;
  uint64_t position_;
  uint64_t draw_ = 0;
  PhiloxBlock block_;  // the block of draw_ - 1, if draw_ is odd
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_RANDOM_H_
