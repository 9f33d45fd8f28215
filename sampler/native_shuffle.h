// A shuffle without memory: the index at any position of any epoch is computed,
// in nanoseconds, at any size.
//
//   NativeShuffleOptions options;
//   options.size = 1000000000000;
//   options.seed = 7;
//   auto order = NativeShuffle::Create(options);
//
// It is a permutation for every size (Feistel's construction over two digits
// whose radixes multiply to the size or little more, and results beyond the
// size sent through again), keyed by all bits of seed and epoch.
#ifndef LOCKSTEP_SAMPLER_NATIVE_SHUFFLE_H_
#define LOCKSTEP_SAMPLER_NATIVE_SHUFFLE_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

struct NativeShuffleOptions {
  // Samples in the dataset, up to 2^62.
  int64_t size = 0;

  uint64_t seed = 0;
};

// The order. Seeds and epochs are kept apart: seed 0 at epoch 1 has nothing to
// do with seed 1 at epoch 0.
class NativeShuffle : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const NativeShuffle>> Create(
      const NativeShuffleOptions& options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;

 private:
  explicit NativeShuffle(const NativeShuffleOptions& options)
      : options_(options) {}

  const NativeShuffleOptions options_;
};

// The permutation of [0, size) by itself, for orders that are made of others.
// Thread-safety: immutable.
class NativePermutation {
 public:
  // Requires 0 <= size <= 2^62. `key` as of RandomKey.
  NativePermutation(int64_t size, uint64_t key);

  int64_t size() const { return size_; }

  // The index at `position`. Requires 0 <= position < size().
  int64_t operator[](int64_t position) const;

  // The same at first, first + stride, ..., by vectors.
  void Read(int64_t first, int64_t stride, absl::Span<int64_t> out) const;

 private:
  friend class NativePermutationVectors;

  static constexpr int kRounds = 6;

  // Sends a pair of digits through the rounds.
  void Permute(uint32_t& high, uint32_t& low) const;

  int64_t size_;
  uint32_t high_radix_;
  uint32_t low_radix_;
  std::array<uint32_t, 2 * kRounds> keys_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_NATIVE_SHUFFLE_H_
