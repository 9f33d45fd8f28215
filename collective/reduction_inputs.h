// ReductionInputs are the inputs of a reduction, as a rank collects them before
// it reduces them. Each rank gives one, and in an all-reduce of shards one for
// each sum that it brings.
//
//   inputs.Begin(op);
//   for (int rank = 0; rank < size; ++rank) {
//     for (int64_t i = 0; i < inputs.CountOf(rank); ++i) {
//       inputs.At(rank, i) = ...;
//     }
//   }
//   inputs.Reduce(op, count, outs);
#ifndef LOCKSTEP_COLLECTIVE_REDUCTION_INPUTS_H_
#define LOCKSTEP_COLLECTIVE_REDUCTION_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/operation.h"

namespace lockstep::internal_collective {

// Thread-safety: thread-compatible.
class ReductionInputs {
 public:
  // Begins with one input for each of `size` ranks.
  explicit ReductionInputs(int size) { BeginOneEach(size); }

  // Begins the inputs of an operation, whose counts were checked. One that
  // reduces nothing has one input for each rank, too. If the operation before
  // has dealt the shards in the same way, this takes no time that matters.
  void Begin(const Operation& op);

  // Return the number of inputs of a rank, of all ranks, and the largest number
  // of any rank.
  int64_t CountOf(int rank) const {
    return PlaceOf(rank + 1, 0) - PlaceOf(rank, 0);
  }
  int64_t total() const { return firsts_.back(); }
  int64_t most() const { return most_; }

  // Returns the place of input i of a rank among those of all ranks.
  int64_t PlaceOf(int rank, int64_t i) const {
    return firsts_[static_cast<size_t>(rank)] + i;
  }
  // The address of input i of a rank.
  const void*& At(int rank, int64_t i) {
    return inputs_[static_cast<size_t>(PlaceOf(rank, i))];
  }

  // Reduces `count` elements of all inputs to all outputs, as ReduceInOrder
  // does, or along the tree of shards. An output may be the same memory as an
  // input.
  void Reduce(const Operation& op, int64_t count, absl::Span<void* const> outs);

 private:
  void BeginOneEach(int size);
  void BeginShards(const std::vector<int64_t>& shards);
  void ReduceShards(DType dtype, int64_t count, absl::Span<void* const> outs);

  std::vector<int64_t> firsts_;  // by rank: its first input. The end is last.
  int64_t most_ = 1;
  std::vector<const void*> inputs_;

  // ---- Of an all-reduce of shards.

  std::vector<int64_t> shards_;  // by rank. Empty for other reductions.
  // By input: the number of sums that are completed with it.
  std::vector<int> joins_;
  // Memory for a block of each sum that waits for its second half, and the
  // addresses of these sums, from the first one to the one that is made.
  std::vector<double> blocks_;
  std::vector<const void*> sums_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_REDUCTION_INPUTS_H_
