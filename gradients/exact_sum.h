// An ExactSum says how one rank adds up its shards of a step, one after
// another, along the tree of all shards (shard_tree.h). What is left at the end
// is what AllReduceShards takes. So the sum over all ranks has the same bits on
// any number of them. Internal.
//
//   const ExactSum exact(/*shards=*/24, /*ranks=*/3, /*rank=*/0);
//   std::vector<float> slots(exact.slots() * gradient.size());
//   for (int64_t i = 0; i < exact.count(); ++i) {
//     ...  // computes the gradient of shard i of this rank
//     exact.Add(i, DType::kF32, gradient.data(), gradient.size(), DType::kF32,
//               slots.data(), /*stride=*/gradient.size());
//   }
//   // The first exact.sums() slots have the sums of this rank's shards.
#ifndef LOCKSTEP_GRADIENTS_EXACT_SUM_H_
#define LOCKSTEP_GRADIENTS_EXACT_SUM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/base/shard_tree.h"
#include "lockstep/collective/communicator.h"

namespace lockstep::internal_gradients {

// Thread-safety: immutable.
class ExactSum {
 public:
  // Requires: IsShardCount(shards), and 0 <= rank < ranks <= shards.
  ExactSum(int64_t shards, int64_t ranks, int64_t rank);

  // The numbers of shards of all ranks, by rank.
  absl::Span<const int64_t> shards() const { return shards_; }
  // The shards of this rank.
  ShardRange own() const { return own_; }
  int64_t count() const { return own_.end - own_.begin; }
  // Returns "shards 8 to 15 of 24", which are those of this rank.
  std::string Describe() const;

  // The most sums that wait at a time, and those that are left at the end.
  int64_t slots() const { return slots_; }
  int64_t sums() const { return SumsAfter(count()); }
  // Returns the number of sums after so many shards of this rank.
  int64_t SumsAfter(int64_t shards) const;

  // Adds the values of this rank's shard number `shard`, counted from 0, to the
  // sums. A value of -0 counts as 0. Slot k begins k * stride elements behind
  // `slots`. Requires: the shards before it were added. `to_type` is kF64, or
  // it is kF32 and `from_type` is not kF64.
  void Add(int64_t shard, DType from_type, const void* from, int64_t count,
           DType to_type, void* slots, int64_t stride) const;

 private:
  // A Place says what is done with a shard: it comes into a slot, and then so
  // many pairs of the last slots are added up.
  struct Place {
    int64_t slot = 0;
    int64_t joins = 0;
  };

  std::vector<int64_t> shards_;
  ShardRange own_;
  std::vector<Place> places_;  // by shard of this rank
  int64_t slots_ = 0;
};

// Returns the sum of a rank of a group, or null if there are no shards.
//   INVALID_ARGUMENT  there is no tree of so many shards, or there are more
//                     ranks
absl::StatusOr<std::unique_ptr<const ExactSum>> MakeExactSum(
    int64_t shards, const Communicator& group);

}  // namespace lockstep::internal_gradients

#endif  // LOCKSTEP_GRADIENTS_EXACT_SUM_H_
