#include "lockstep/sampler/native_shuffle.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/check_options.h"
#include "lockstep/sampler/random_streams.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep {
namespace {

// These odd constants spread a small difference over all bits of the product.
constexpr uint32_t kSpread1 = 0x7feb352d;
constexpr uint32_t kSpread2 = 0x846ca68b;

// Returns ceil(sqrt(size)).
uint64_t RootRoundedUp(uint64_t size) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(size)));
  while (root * root < size) ++root;
  while (root > 0 && (root - 1) * (root - 1) >= size) --root;
  return root;
}

// Returns a function of `digit` and two keys that is uniform in [0, radix).
uint32_t RoundValue(uint32_t digit, uint32_t key1, uint32_t key2,
                    uint32_t radix) {
  uint32_t x = (digit ^ key1) * kSpread1;
  x = ((x ^ x >> 15) + key2) * kSpread2;
  return static_cast<uint32_t>(uint64_t{x} * radix >> 32);
}

// Returns a + b modulo radix. Requires: a and b are below radix, and radix is
// at most 2^31.
uint32_t AddModulo(uint32_t a, uint32_t b, uint32_t radix) {
  const uint32_t sum = a + b;
  return sum < radix ? sum : sum - radix;
}

// Thread-safety: thread-compatible.
class NativeStream : public IndexStream {
 public:
  explicit NativeStream(const NativePermutation& permutation)
      : permutation_(permutation) {}

  int64_t size() const override { return permutation_.size(); }
  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    permutation_.Read(first, stride, out);
    return absl::OkStatus();
  }

 private:
  const NativePermutation permutation_;
};

}  // namespace

NativePermutation::NativePermutation(int64_t size, uint64_t key)
    : size_(size), high_radix_(0), low_radix_(0) {
  if (size > 0) {
    const uint64_t high = RootRoundedUp(static_cast<uint64_t>(size));
    high_radix_ = static_cast<uint32_t>(high);
    low_radix_ =
        static_cast<uint32_t>((static_cast<uint64_t>(size) + high - 1) / high);
  }
  Random random(key);
  for (size_t i = 0; i < keys_.size(); i += 2) {
    const uint64_t bits = random();
    keys_[i] = static_cast<uint32_t>(bits);
    keys_[i + 1] = static_cast<uint32_t>(bits >> 32);
  }
}

void NativePermutation::Permute(uint32_t& high, uint32_t& low) const {
  for (size_t i = 0; i < keys_.size(); i += 4) {
    high = AddModulo(high, RoundValue(low, keys_[i], keys_[i + 1], high_radix_),
                     high_radix_);
    low =
        AddModulo(low, RoundValue(high, keys_[i + 2], keys_[i + 3], low_radix_),
                  low_radix_);
  }
}

int64_t NativePermutation::operator[](int64_t position) const {
  uint64_t value = static_cast<uint64_t>(position);
  // The product of the radixes is below size + high_radix, so few values need
  // another round.
  do {
    auto high = static_cast<uint32_t>(value / low_radix_);
    auto low = static_cast<uint32_t>(value % low_radix_);
    Permute(high, low);
    value = uint64_t{high} * low_radix_ + low;
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

#if defined(__x86_64__)

// Permutes eight positions at a time, one in each 32-bit lane.
// Thread-safety: thread-safe, with static functions only.
class NativePermutationVectors {
 public:
  // Reads as many whole groups of eight as fit, and returns the number of
  // positions.
  __attribute__((target("avx2"))) static size_t Read(
      const NativePermutation& permutation, int64_t first, int64_t stride,
      absl::Span<int64_t> out) {
    constexpr size_t kLanes = 8;
    if (out.size() < kLanes) return 0;
    const uint64_t low_radix = permutation.low_radix_;
    alignas(32) uint32_t high_digits[kLanes], low_digits[kLanes];
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const uint64_t position =
          static_cast<uint64_t>(first) + lane * static_cast<uint64_t>(stride);
      high_digits[lane] = static_cast<uint32_t>(position / low_radix);
      low_digits[lane] = static_cast<uint32_t>(position % low_radix);
    }
    __m256i high = _mm256_load_si256(reinterpret_cast<__m256i*>(high_digits));
    __m256i low = _mm256_load_si256(reinterpret_cast<__m256i*>(low_digits));

    const uint64_t step = kLanes * static_cast<uint64_t>(stride);
    const __m256i high_step = Set(static_cast<uint32_t>(step / low_radix) + 1);
    const __m256i low_step = Set(static_cast<uint32_t>(step % low_radix));
    const __m256i radix = Set(permutation.low_radix_);
    const __m256i wide_radix =
        _mm256_set1_epi64x(static_cast<int64_t>(low_radix));
    const __m256i limit = _mm256_set1_epi64x(permutation.size_ - 1);

    size_t done = 0;
    while (true) {
      __m256i permuted_high = high, permuted_low = low;
      Permute(permutation, permuted_high, permuted_low);
      bool beyond = false;
      for (int half = 0; half < 2; ++half) {
        const __m256i value = _mm256_add_epi64(
            _mm256_mul_epu32(Widen(permuted_high, half), wide_radix),
            Widen(permuted_low, half));
        _mm256_storeu_si256(
            reinterpret_cast<__m256i*>(out.data() + done + 4 * half), value);
        beyond |= _mm256_movemask_epi8(_mm256_cmpgt_epi64(value, limit)) != 0;
      }
      if (beyond) {
        for (size_t i = done; i < done + kLanes; ++i) {
          if (out[i] >= permutation.size_) out[i] = permutation[out[i]];
        }
      }
      done += kLanes;
      if (out.size() - done < kLanes) break;
      // Moves to the next group. The low digits wrap around where they have a
      // carry.
      const __m256i sum = _mm256_add_epi32(low, low_step);
      low = _mm256_min_epu32(sum, _mm256_sub_epi32(sum, radix));
      high = _mm256_add_epi32(
          high, _mm256_add_epi32(high_step, _mm256_cmpeq_epi32(low, sum)));
    }
    // Otherwise, later SSE code is slow: GCC does this only from -O2 on.
    _mm256_zeroupper();
    return done;
  }

 private:
  __attribute__((target("avx2"))) static __m256i Set(uint32_t value) {
    return _mm256_set1_epi32(static_cast<int32_t>(value));
  }

  __attribute__((target("avx2"))) static __m256i Widen(__m256i digits,
                                                       int half) {
    return _mm256_cvtepu32_epi64(half == 0
                                     ? _mm256_castsi256_si128(digits)
                                     : _mm256_extracti128_si256(digits, 1));
  }

  __attribute__((target("avx2"))) static __m256i AddRoundValue(
      __m256i to, __m256i digit, const uint32_t* keys, uint32_t radix) {
    __m256i x = _mm256_xor_si256(digit, Set(keys[0]));
    x = _mm256_mullo_epi32(x, Set(kSpread1));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 15));
    x = _mm256_mullo_epi32(_mm256_add_epi32(x, Set(keys[1])), Set(kSpread2));
    // The upper halves of the products with the radix: those of even lanes are
    // shifted down, those of odd lanes are already in place.
    const __m256i radixes = Set(radix);
    const __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(x, radixes), 32);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), radixes);
    const __m256i value = _mm256_blend_epi32(even, odd, 0xaa);
    const __m256i sum = _mm256_add_epi32(to, value);
    return _mm256_min_epu32(sum, _mm256_sub_epi32(sum, radixes));
  }

  __attribute__((target("avx2"))) static void Permute(
      const NativePermutation& permutation, __m256i& high, __m256i& low) {
    const auto& keys = permutation.keys_;
    for (size_t i = 0; i < keys.size(); i += 4) {
      high = AddRoundValue(high, low, &keys[i], permutation.high_radix_);
      low = AddRoundValue(low, high, &keys[i + 2], permutation.low_radix_);
    }
  }
};

#endif  // defined(__x86_64__)

void NativePermutation::Read(int64_t first, int64_t stride,
                             absl::Span<int64_t> out) const {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    const size_t done =
        NativePermutationVectors::Read(*this, first, stride, out);
    first += static_cast<int64_t>(done) * stride;
    out.remove_prefix(done);
  }
#endif
  for (int64_t& index : out) {
    index = (*this)[first];
    first += stride;
  }
}

absl::StatusOr<std::shared_ptr<const NativeShuffle>> NativeShuffle::Create(
    const NativeShuffleOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSize("native_shuffle", options.size));
  return std::shared_ptr<const NativeShuffle>(new NativeShuffle(options));
}

absl::StatusOr<std::unique_ptr<IndexStream>> NativeShuffle::Open(
    int64_t epoch) const {
  return std::make_unique<NativeStream>(NativePermutation(
      options_.size, RandomKey(options_.seed, kNativeShuffleStream,
                               static_cast<uint64_t>(epoch))));
}

OrderDescription NativeShuffle::Describe() const {
  OrderDescription description;
  description.order = "native_shuffle";
  description.size = options_.size;
  description.seed = options_.seed;
  return description;
}

}  // namespace lockstep
