// A shuffle without memory. It computes the index at any position of any epoch
// in nanoseconds, at any size.
//
//   NativeShuffleOptions options;
//   options.size = 1000000000000;
//   options.seed = 7;
//   auto order = NativeShuffle::Create(options);
//
// It is a permutation for every size. It is a Feistel network over two digits,
// whose radixes multiply to the size or a little more; results beyond the size
// go through the network again. Its key depends on all bits of seed and epoch.
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
  // The samples in the dataset, up to 2^62.
  int64_t size = 0;

  uint64_t seed = 0;
};

// The order. Seed and epoch are independent: seed 0 at epoch 1 has nothing to
// do with seed 1 at epoch 0.
// Thread-safety: immutable.
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

// A permutation of [0, size), for orders that build on it.
// Thread-safety: immutable.
class NativePermutation {
 public:
  // Requires: 0 <= size <= 2^62. `key` is as from RandomKey.
  NativePermutation(int64_t size, uint64_t key);

  int64_t size() const { return size_; }

  // Returns the index at `position`. Requires: 0 <= position < size().
  int64_t operator[](int64_t position) const;

  // Reads the indices at first, first + stride, ..., with vectors if the
  // processor has AVX2.
  void Read(int64_t first, int64_t stride, absl::Span<int64_t> out) const;

 private:
  friend class NativePermutationVectors;

  static constexpr int kRounds = 6;

  // Passes a pair of digits through all rounds.
  void Permute(uint32_t& high, uint32_t& low) const;

  int64_t size_;
  uint32_t high_radix_;
  uint32_t low_radix_;
  std::array<uint32_t, 2 * kRounds> keys_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_NATIVE_SHUFFLE_H_
