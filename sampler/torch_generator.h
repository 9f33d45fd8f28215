// TorchGenerator is PyTorch's CPU generator. It gives the words of
// torch.Generator().manual_seed(seed). It is MT19937, seeded with the lower 32
// bits of the seed.
//
//   TorchGenerator generator(42);
//   uint32_t word = generator.Next32();
//   double u = generator.NextUniform();  // as multinomial draws it
//
// The engine makes 624 words at a time, with vectors.
#ifndef LOCKSTEP_SAMPLER_TORCH_GENERATOR_H_
#define LOCKSTEP_SAMPLER_TORCH_GENERATOR_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Thread-safety: thread-compatible.
class TorchGenerator {
 public:
  explicit TorchGenerator(uint64_t seed);

  uint32_t Next32() {
    if (next_ == kWords) Refill();
    return tempered_[next_++];
  }

  // Returns 64 bits. The first word is the upper half.
  uint64_t Next64() {
    const uint64_t high = Next32();
    return high << 32 | Next32();
  }

  // Returns the value of torch.empty((), dtype=torch.int64).random_().
  int64_t NextInt63() { return static_cast<int64_t>(Next64() & ~kTopBit); }

  // Returns a number in [0, 1) from 53 bits of a 64-bit draw.
  double NextUniform() {
    return static_cast<double>(Next64() & ((uint64_t{1} << 53) - 1)) * 0x1p-53;
  }

  // Calls Next32() for each element.
  void Fill(absl::Span<uint32_t> out);

  // Moves past `words` calls of Next32(), at half a nanosecond each.
  void Skip(uint64_t words);

 private:
  static constexpr size_t kWords = 624;
  static constexpr uint64_t kTopBit = uint64_t{1} << 63;

  void Refill();

  std::array<uint32_t, kWords> state_;
  std::array<uint32_t, kWords> tempered_;
  size_t next_ = kWords;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_TORCH_GENERATOR_H_
