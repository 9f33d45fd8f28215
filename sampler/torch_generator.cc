#include "lockstep/sampler/torch_generator.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Functions here pass vectors to each other, but all are inlined, so the
// calling convention does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace lockstep {
namespace {

constexpr size_t kWords = 624;
constexpr size_t kShift = 397;

// Computes a word of MT19937's recurrence from the previous word, its neighbour
// and a shifted word.
template <typename Word>
inline __attribute__((always_inline)) Word Twist(Word from, Word next,
                                                 Word shifted) {
  const Word mixed = (from & 0x80000000u) | (next & 0x7fffffffu);
  return shifted ^ (mixed >> 1) ^ ((-(next & 1u)) & 0x9908b0dfu);
}

template <typename Word>
inline __attribute__((always_inline)) Word Temper(Word y) {
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

// Several words side by side; the compiler uses the registers that there are.
template <int lanes>
struct Lanes {
  typedef uint32_t Type __attribute__((vector_size(4 * lanes)));
};

template <typename Vector>
inline __attribute__((always_inline)) Vector Load(const uint32_t* from) {
  Vector value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// Advances `count` words. Each depends on itself, its neighbour and a word so
// far away that a vector does not reach the words it writes.
template <int lanes, size_t count>
inline __attribute__((always_inline)) void TwistRange(uint32_t* words,
                                                      const uint32_t* shifted) {
  using Vector = typename Lanes<lanes>::Type;
  constexpr size_t kWhole = count / lanes * lanes;
  for (size_t i = 0; i < kWhole; i += lanes) {
    const Vector twisted =
        Twist(Load<Vector>(words + i), Load<Vector>(words + i + 1),
              Load<Vector>(shifted + i));
    std::memcpy(words + i, &twisted, sizeof(twisted));
  }
  for (size_t i = kWhole; i < count; ++i) {
    words[i] = Twist(words[i], words[i + 1], shifted[i]);
  }
}

template <int lanes>
inline __attribute__((always_inline)) void RefillBy(uint32_t* state,
                                                    uint32_t* tempered) {
  using Vector = typename Lanes<lanes>::Type;
  constexpr size_t kBefore = kWords - kShift;
  TwistRange<lanes, kBefore>(state, state + kShift);
  TwistRange<lanes, kShift - 1>(state + kBefore, state);
  state[kWords - 1] = Twist(state[kWords - 1], state[0], state[kShift - 1]);
  static_assert(kWords % lanes == 0);
  for (size_t i = 0; i < kWords; i += lanes) {
    const Vector words = Temper(Load<Vector>(state + i));
    std::memcpy(tempered + i, &words, sizeof(words));
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void RefillAvx2(uint32_t* state,
                                                uint32_t* tempered) {
  RefillBy<8>(state, tempered);
  // Otherwise, later SSE code is slow: GCC does this only from -O2 on.
  _mm256_zeroupper();
}
#endif

}  // namespace

TorchGenerator::TorchGenerator(uint64_t seed) {
  state_[0] = static_cast<uint32_t>(seed);
  for (size_t i = 1; i < kWords; ++i) {
    const uint32_t before = state_[i - 1];
    state_[i] =
        1812433253u * (before ^ before >> 30) + static_cast<uint32_t>(i);
  }
}

void TorchGenerator::Refill() {
  next_ = 0;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    RefillAvx2(state_.data(), tempered_.data());
    return;
  }
#endif
  RefillBy<4>(state_.data(), tempered_.data());
}

void TorchGenerator::Fill(absl::Span<uint32_t> out) {
  while (!out.empty()) {
    if (next_ == kWords) Refill();
    const size_t count = std::min(out.size(), kWords - next_);
    std::memcpy(out.data(), tempered_.data() + next_, 4 * count);
    next_ += count;
    out.remove_prefix(count);
  }
}

void TorchGenerator::Skip(uint64_t words) {
  while (words > kWords - next_) {
    words -= kWords - next_;
    Refill();
  }
  next_ += words;
}

}  // namespace lockstep
