// Random numbers that are the same everywhere.
//
//   Random random(RandomKey(seed, stream, epoch), position);
//   double crop = random.Uniform(0.8, 1.0);
//   bool flip = random.Below(2) == 1;
//   float noise = static_cast<float>(random.Normal());
//
// The numbers depend on key, position and draw alone, and are the same bits
// with every compiler, optimization level, C library and processor. The
// standard library's distributions are not; this class does feed them
// (it is a UniformRandomBitGenerator) where that does not matter.
//
// Guarantees: a draw is 64 random bits. Uniform, Normal and Exponential take
// one, Below and Integer nearly always (another one with a chance below n /
// 2^64). FillX(out) is X() for each element in turn, only faster. Making one
// costs nothing: no allocation, no work before the first draw. Thread-safety:
// thread-compatible; cheap to copy, and a copy goes on from the same draw.
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

// A key from what tells streams of numbers apart. Every bit of every argument
// counts, and none can stand in for another: seed 1 at epoch 0 has nothing to
// do with seed 0 at epoch 1.
uint64_t RandomKey(uint64_t seed, uint64_t stream, uint64_t epoch);

namespace internal_base {
// The normal number of one draw.
double NormalFromBits(uint64_t bits);
}  // namespace internal_base

class Random {
 public:
  explicit Random(uint64_t key, uint64_t position = 0)
      : key_(key), position_(position) {}

  // UniformRandomBitGenerator.
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

  // How many draws were taken.
  uint64_t draws() const { return draw_; }

  // In [0, 1): a multiple of 2^-53.
  double Uniform() { return ToUniform((*this)()); }

  // In [low, high), or `low` for an empty range. Both are finite, and so is
  // their difference.
  double Uniform(double low, double high);

  // Mean 0, standard deviation 1; at most 8.3 either way.
  double Normal() { return internal_base::NormalFromBits((*this)()); }
  double Normal(double mean, double deviation);

  // Mean 1; positive, and at most 37.
  double Exponential();

  // In [0, n), each equally likely; 0 for n = 0.
  uint64_t Below(uint64_t n);

  // In [low, high), each equally likely; `low` for an empty range.
  int64_t Integer(int64_t low, int64_t high);

  // Brings `values` into any order, each equally likely, by size - 1 calls of
  // Below: the last place is settled first.
  template <typename T>
  void Shuffle(absl::Span<T> values) {
    for (size_t left = values.size(); left > 1; --left) {
      using std::swap;
      swap(values[left - 1], values[Below(left)]);
    }
  }

  // Draws.
  void Fill(absl::Span<uint64_t> out);

  // Uniform() or Normal() for each element. A uniform float is rounded down, to
  // a multiple of 2^-24, and so stays below 1; a normal one to nearest.
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
  PhiloxBlock block_;  // Of draw_ - 1, when draw_ is odd.
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_RANDOM_H_
