#include "lockstep/sampler/torch_permutation.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/zeroed_memory.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep {

// Thread-safety: thread-compatible.
class TorchPermutation::Implementation {
 public:
  virtual ~Implementation() = default;
  virtual int64_t size() const = 0;
  virtual absl::Status Prepare() = 0;
  virtual absl::Status Read(int64_t first, int64_t stride,
                            absl::Span<int64_t> out) = 0;
};

namespace {

// The number of steps that are processed at once. The places that the next
// steps swap with are known, so they are fetched while the current ones are
// swapped.
constexpr int64_t kChunk = 128;

// The number of steps of a large permutation that are taken without a table.
constexpr int64_t kEarlySteps = 8192;

// Sets targets[k] = i + k + words[k] % (size - i - k), the place with which
// step i + k swaps.
void FindTargetsPortable(const uint32_t* words, uint64_t i, uint64_t size,
                         int64_t count, uint32_t* targets) {
  for (int64_t k = 0; k < count; ++k, ++i) {
    targets[k] =
        static_cast<uint32_t>(i + words[k] % static_cast<uint32_t>(size - i));
  }
}

#if defined(__x86_64__)
// Does the same for four at a time. The quotient of two 32-bit numbers in
// double precision is never rounded up to the next integer. For that it would
// have to be within a relative distance of 2^-53 from an integer, but the
// nearest is at 2^-32. So its floor is exact.
// Requires: count is divisible by 4, and size - i - count >= 2, so that
// quotients fit into 31 bits.
__attribute__((target("avx2"))) void FindTargetsAvx2(const uint32_t* words,
                                                     uint64_t i, uint64_t size,
                                                     int64_t count,
                                                     uint32_t* targets) {
  const __m256d two52 = _mm256_set1_pd(0x1p52);
  const __m256i steps = _mm256_setr_epi64x(0, 1, 2, 3);
  __m256i position =
      _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(i)), steps);
  __m256i modulus = _mm256_sub_epi64(
      _mm256_set1_epi64x(static_cast<int64_t>(size - i)), steps);
  const __m256i four = _mm256_set1_epi64x(4);
  // These are the lower halves of four lanes, side by side.
  const __m256i lower = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
  for (int64_t k = 0; k < count; k += 4) {
    const __m256i word = _mm256_cvtepu32_epi64(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(words + k)));
    // x | bits of 2^52 is the double 2^52 + x.
    const __m256d dividend = _mm256_sub_pd(
        _mm256_castsi256_pd(_mm256_or_si256(word, _mm256_castpd_si256(two52))),
        two52);
    const __m256d divisor =
        _mm256_sub_pd(_mm256_castsi256_pd(
                          _mm256_or_si256(modulus, _mm256_castpd_si256(two52))),
                      two52);
    const __m256i quotient = _mm256_cvtepi32_epi64(
        _mm256_cvttpd_epi32(_mm256_div_pd(dividend, divisor)));
    const __m256i remainder =
        _mm256_sub_epi64(word, _mm256_mul_epu32(quotient, modulus));
    const __m256i target = _mm256_permutevar8x32_epi32(
        _mm256_add_epi64(position, remainder), lower);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(targets + k),
                     _mm256_castsi256_si128(target));
    position = _mm256_add_epi64(position, four);
    modulus = _mm256_sub_epi64(modulus, four);
  }
  // Otherwise, later SSE code is slow: GCC does this only from -O2 on.
  _mm256_zeroupper();
}
#endif

void FindTargets(const uint32_t* words, uint64_t i, uint64_t size,
                 int64_t count, uint32_t* targets) {
#if defined(__x86_64__)
  if (count % 4 == 0 && size - i >= static_cast<uint64_t>(count) + 2 &&
      __builtin_cpu_supports("avx2")) {
    FindTargetsAvx2(words, i, size, count, targets);
    return;
  }
#endif
  FindTargetsPortable(words, i, size, count, targets);
}

// From 2^32 samples on, a 32-bit word reaches only the next 2^32 places.
void FindTargets(const uint32_t* words, uint64_t i, uint64_t size,
                 int64_t count, uint64_t* targets) {
  for (int64_t k = 0; k < count; ++k, ++i) {
    targets[k] = i + words[k] % (size - i);
  }
}

// A hash table of the places that the first steps changed. A table of the whole
// permutation would cost a page fault for nearly every such place.
// Thread-safety: thread-compatible.
template <typename Word>
class EarlyPlaces {
 public:
  // Returns the displacement of `place`. It is 0 if the place is new, as in the
  // table.
  Word& Displacement(Word place) {
    size_t at = place * uint64_t{0x9e3779b97f4a7c15} >> (64 - kBits);
    while (slots_[at].place_plus_1 != 0 &&
           slots_[at].place_plus_1 != place + 1) {
      at = (at + 1) % slots_.size();
    }
    slots_[at].place_plus_1 = place + 1;
    return slots_[at].displacement;
  }

  void CopyTo(Word* table) const {
    for (const Slot& slot : slots_) {
      if (slot.place_plus_1 != 0) {
        table[slot.place_plus_1 - 1] = slot.displacement;
      }
    }
  }

 private:
  // A step changes two places, so the slots are at most half full.
  static constexpr int kBits = 15;
  static_assert(4 * kEarlySteps <= int64_t{1} << kBits);

  struct Slot {
    Word place_plus_1 = 0;
    Word displacement = 0;
  };
  std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << kBits);
};

// `table_[i]` holds value - i, so memory of zeros is the identity.
// Thread-safety: thread-compatible.
template <typename Word>
class PermutationOf : public TorchPermutation::Implementation {
 public:
  PermutationOf(int64_t size, bool inside_out, const TorchGenerator& generator)
      : size_(size), inside_out_(inside_out), generator_(generator) {}

  int64_t size() const override { return size_; }

  absl::Status Prepare() override {
    if (table_ != nullptr || size_ == 0) return absl::OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(
        memory_,
        ZeroedMemory::Create(TableBytes(),
                             absl::StrCat("PyTorch's permutation of ", size_,
                                          " samples (the native order needs "
                                          "none)")));
    table_ = static_cast<Word*>(memory_.data());
    if (early_ != nullptr) {
      early_->CopyTo(table_);
      early_.reset();
    }
    if (inside_out_) BuildInsideOut();
    return absl::OkStatus();
  }

  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    if (out.empty()) return absl::OkStatus();
    const int64_t last =
        first + stride * (static_cast<int64_t>(out.size()) - 1);
    if (StaysEarly(last)) {
      AdvanceEarly(last + 1);
      for (int64_t& index : out) {
        index = Value(first, early_->Displacement(static_cast<Word>(first)));
        first += stride;
      }
      return absl::OkStatus();
    }
    LOCKSTEP_RETURN_IF_ERROR(Prepare());
    while (frontier_ <= last) SwapChunk();
    for (int64_t& index : out) {
      index = Value(first, table_[first]);
      first += stride;
    }
    return absl::OkStatus();
  }

 private:
  // Below this size, a table costs no more than a hash.
  static constexpr int64_t kSmall = int64_t{1} << 20;

  size_t TableBytes() const {
    size_t bytes;
    return __builtin_mul_overflow(size_, sizeof(Word), &bytes) ? ~size_t{0}
                                                               : bytes;
  }

  static int64_t Value(int64_t place, Word displacement) {
    return static_cast<Word>(static_cast<Word>(place) + displacement);
  }

  bool StaysEarly(int64_t last) const {
    return table_ == nullptr && !inside_out_ && size_ > kSmall &&
           last < kEarlySteps;
  }

  // Turns words of the generator into targets, a chunk at a time. The last step
  // has no choice, so it takes no word.
  void FindNextTargets() {
    const int64_t count = std::min(kChunk, size_ - 1 - found_);
    if (count <= 0) return;
    std::array<uint32_t, kChunk> words;
    generator_.Fill(absl::MakeSpan(words.data(), count));
    FindTargets(words.data(), static_cast<uint64_t>(found_),
                static_cast<uint64_t>(size_), count, TargetsOf(found_));
    found_ += count;
  }

  // Returns the targets of the chunk of `step`. Those of two chunks are kept.
  Word* TargetsOf(int64_t step) { return targets_[step / kChunk % 2].data(); }

  void AdvanceEarly(int64_t end) {
    if (early_ == nullptr) early_ = std::make_unique<EarlyPlaces<Word>>();
    for (; frontier_ < end; ++frontier_) {
      if (frontier_ == found_) FindNextTargets();
      const Word i = static_cast<Word>(frontier_);
      const Word j = TargetsOf(frontier_)[frontier_ % kChunk];
      Word& at_j = early_->Displacement(j);
      Word& at_i = early_->Displacement(i);
      const Word value_j = j + at_j;
      at_j = i + at_i - j;
      at_i = value_j - i;
    }
  }

  // Fixes the positions up to the end of the current chunk.
  void SwapChunk() {
    const int64_t end =
        std::min(frontier_ / kChunk * kChunk + kChunk, size_ - 1);
    if (found_ < end) FindNextTargets();
    if (found_ == end) FindNextTargets();  // the next chunk, to be fetched
    Word* const table = table_;
    const Word* const targets = TargetsOf(frontier_) + frontier_ % kChunk;
    // Beside each swap, one place of the next chunk is fetched, so that waiting
    // for memory overlaps with work. (After the last chunk these are old
    // places, which is harmless.)
    const Word* const ahead = TargetsOf(end);
    Word i = static_cast<Word>(frontier_);
    for (int64_t k = 0; k < end - frontier_; ++k, ++i) {
      __builtin_prefetch(table + ahead[k]);
      const Word j = targets[k];
      const Word value_i = i + table[i];
      const Word value_j = j + table[j];
      table[i] = value_j - i;
      table[j] = value_i - j;
    }
    frontier_ = end == size_ - 1 ? size_ : end;
  }

  // PyTorch's other algorithm: each new place i gets the value of a place z <=
  // i, and place z gets the value i.
  void BuildInsideOut() {
    std::array<std::array<uint64_t, kChunk>, 2> targets;
    int64_t found = 0;
    auto find_next = [&] {
      const int64_t end = std::min(found + kChunk, size_);
      uint64_t* const to = targets[found / kChunk % 2].data();
      for (; found < end; ++found) {
        const uint64_t z =
            generator_.Next64() % (static_cast<uint64_t>(found) + 1);
        to[found % kChunk] = z;
        __builtin_prefetch(table_ + z);
      }
    };
    find_next();
    for (int64_t begin = 0; begin < size_; begin += kChunk) {
      const int64_t end = std::min(begin + kChunk, size_);
      find_next();
      for (int64_t i = begin; i < end; ++i) {
        const uint64_t z = targets[begin / kChunk % 2][i - begin];
        table_[i] = static_cast<Word>(z + table_[z] - i);
        table_[z] = static_cast<Word>(i - z);
      }
    }
    frontier_ = size_;
  }

  const int64_t size_;
  const bool inside_out_;
  TorchGenerator generator_;
  int64_t frontier_ = 0;  // positions below it are final
  int64_t found_ = 0;     // steps whose targets are known
  std::array<std::array<Word, kChunk>, 2> targets_ = {};
  std::unique_ptr<EarlyPlaces<Word>> early_;  // null once there is a table
  ZeroedMemory memory_;
  Word* table_ = nullptr;
};

}  // namespace

TorchPermutation::TorchPermutation(int64_t size, TorchProfile profile,
                                   const TorchGenerator& generator) {
  const bool inside_out = BuildsInsideOut(profile, size);
  if (size < int64_t{1} << 32) {
    implementation_ =
        std::make_unique<PermutationOf<uint32_t>>(size, inside_out, generator);
  } else {
    implementation_ =
        std::make_unique<PermutationOf<uint64_t>>(size, inside_out, generator);
  }
}

TorchPermutation::~TorchPermutation() = default;
TorchPermutation::TorchPermutation(TorchPermutation&&) noexcept = default;
TorchPermutation& TorchPermutation::operator=(TorchPermutation&&) noexcept =
    default;

int64_t TorchPermutation::size() const { return implementation_->size(); }

absl::Status TorchPermutation::Prepare() { return implementation_->Prepare(); }

absl::Status TorchPermutation::Read(int64_t first, int64_t stride,
                                    absl::Span<int64_t> out) {
  return implementation_->Read(first, stride, out);
}

int64_t TorchPermutationWords(TorchProfile profile, int64_t size) {
  if (BuildsInsideOut(profile, size)) return 2 * size;
  return size > 1 ? size - 1 : 0;
}

}  // namespace lockstep
