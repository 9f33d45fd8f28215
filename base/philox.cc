#include "lockstep/base/philox.h"

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep {
namespace {

constexpr int kRounds = 10;
constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;

uint32_t Low(uint64_t value) { return static_cast<uint32_t>(value); }
uint32_t High(uint64_t value) { return static_cast<uint32_t>(value >> 32); }
uint64_t Join(uint32_t low, uint32_t high) {
  return static_cast<uint64_t>(high) << 32 | low;
}

#if defined(__x86_64__)

// Computes four blocks, one in each 64-bit lane. Each state word is in the
// lower half of its lane. The multiplication ignores the upper half.
// Thread-safety: thread-compatible.
class FourBlocks {
 public:
  __attribute__((target("avx2"))) FourBlocks(__m256i low, uint64_t high)
      : word0_(low),
        word1_(_mm256_srli_epi64(low, 32)),
        word2_(_mm256_set1_epi64x(static_cast<int64_t>(high))),
        word3_(_mm256_srli_epi64(word2_, 32)) {}

  __attribute__((target("avx2"))) void Round(__m256i key0, __m256i key1) {
    const __m256i product0 =
        _mm256_mul_epu32(word0_, _mm256_set1_epi64x(kMultiplier0));
    const __m256i product1 =
        _mm256_mul_epu32(word2_, _mm256_set1_epi64x(kMultiplier1));
    word0_ = _mm256_xor_si256(
        _mm256_xor_si256(_mm256_srli_epi64(product1, 32), word1_), key0);
    word2_ = _mm256_xor_si256(
        _mm256_xor_si256(_mm256_srli_epi64(product0, 32), word3_), key1);
    word1_ = product1;
    word3_ = product0;
  }

  __attribute__((target("avx2"))) void Store(PhiloxBlock* out) const {
    // The odd words are shifted into the upper half of each lane.
    const __m256i low =
        _mm256_blend_epi32(word0_, _mm256_slli_epi64(word1_, 32), 0xaa);
    const __m256i high =
        _mm256_blend_epi32(word2_, _mm256_slli_epi64(word3_, 32), 0xaa);
    const __m256i even = _mm256_unpacklo_epi64(low, high);  // blocks 0 and 2
    const __m256i odd = _mm256_unpackhi_epi64(low, high);   // blocks 1 and 3
    __m256i* to = reinterpret_cast<__m256i*>(out);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }

 private:
  __m256i word0_, word1_, word2_, word3_;
};

// Fills as many whole groups of eight blocks as fit, and returns the number of
// blocks.
__attribute__((target("avx2"))) size_t FillAvx2(uint64_t key,
                                                PhiloxCounter first,
                                                absl::Span<PhiloxBlock> out) {
  const __m256i four = _mm256_set1_epi64x(4);
  const __m256i eight = _mm256_set1_epi64x(8);
  __m256i low =
      _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(first.low)),
                       _mm256_setr_epi64x(0, 1, 2, 3));
  size_t done = 0;
  for (; out.size() - done >= 8; done += 8) {
    // Two groups at once hide the latency of the multiplication.
    FourBlocks a(low, first.high);
    FourBlocks b(_mm256_add_epi64(low, four), first.high);
    uint32_t key0 = Low(key), key1 = High(key);
    for (int round = 0; round < kRounds; ++round) {
      const __m256i keys0 = _mm256_set1_epi64x(key0);
      const __m256i keys1 = _mm256_set1_epi64x(key1);
      a.Round(keys0, keys1);
      b.Round(keys0, keys1);
      key0 += kWeyl0;
      key1 += kWeyl1;
    }
    a.Store(out.data() + done);
    b.Store(out.data() + done + 4);
    low = _mm256_add_epi64(low, eight);
  }
  // Otherwise, later SSE code is slow: GCC does this only from -O2 on.
  _mm256_zeroupper();
  return done;
}

#endif  // defined(__x86_64__)

}  // namespace

PhiloxBlock Philox(uint64_t key, PhiloxCounter counter) {
  uint32_t key0 = Low(key), key1 = High(key);
  uint32_t word0 = Low(counter.low), word1 = High(counter.low);
  uint32_t word2 = Low(counter.high), word3 = High(counter.high);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * word0;
    const uint64_t product1 = uint64_t{kMultiplier1} * word2;
    word0 = High(product1) ^ word1 ^ key0;
    word2 = High(product0) ^ word3 ^ key1;
    word1 = Low(product1);
    word3 = Low(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return {Join(word0, word1), Join(word2, word3)};
}

void internal_base::PhiloxFillPortable(uint64_t key, PhiloxCounter first,
                                       absl::Span<PhiloxBlock> out) {
  for (PhiloxBlock& block : out) {
    block = Philox(key, first);
    ++first.low;
  }
}

void PhiloxFill(uint64_t key, PhiloxCounter first,
                absl::Span<PhiloxBlock> out) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    const size_t done = FillAvx2(key, first, out);
    first.low += done;
    out.remove_prefix(done);
  }
#endif
  internal_base::PhiloxFillPortable(key, first, out);
}

}  // namespace lockstep
