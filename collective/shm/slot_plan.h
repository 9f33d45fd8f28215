// A SlotPlan says which bytes of a collective go through which place of the
// ranks' slots, and in which step. It is arithmetic alone: no memory is
// touched.
//
//   plan.Set(op, rank, size, /*most_inputs=*/1);
//   for (int64_t k = 0; k < plan.steps; ++k) {
//     const Slice chunk = plan.ChunkOf(plan.give[0], k);
//     ...  // puts that chunk of op.in into the slot
//   }
#ifndef LOCKSTEP_COLLECTIVE_SHM_SLOT_PLAN_H_
#define LOCKSTEP_COLLECTIVE_SHM_SLOT_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lockstep/base/language.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/transport_util.h"

namespace lockstep::internal_collective {

// The plan by which an operation uses the slots. In its step k, chunk k of
// every slice goes its way: the bytes [k * region, (k + 1) * region) of the
// slice. A chunk consists of whole elements, since the sizes of all types
// divide a cache line.
//
// Guarantees: `region`, `chunks` and `steps` are the same on all ranks.
// Thread-safety: thread-compatible.
struct SlotPlan {
  // If the inputs of all ranks have together no more bytes than these, every
  // rank reduces all of them. It reads more, but needs one step only.
  static constexpr int64_t kSmallBytes = 256 << 10;

  // Returns true if a slot has room for a region of each input for each rank.
  static bool HasRoom(int size, int64_t most_inputs);

  // Tests pass other bytes than kSmallBytes.
  explicit SlotPlan(int64_t small = kSmallBytes) : small_bytes(small) {}

  // Makes the plan of a collective for this rank. A rank gives at most
  // `most_inputs` inputs, which is more than one only in a reduction. It uses
  // the memory of the plan before it again.
  void Set(const Operation& op, int rank, int size, int64_t most_inputs);

  // Sets the number of steps, given the bytes of the largest slice of any rank.
  // Set does that itself, except for an all-to-all, whose ranks have to compare
  // their counts first.
  void SetSteps(int64_t largest);

  // Returns true if this rank gives the same bytes to all others.
  bool for_all() const { return give.size() == 1; }

  // Returns true if a rank gives data to others. All-to-alls, in which each
  // rank knows its own counts alone, do not ask.
  static bool Gives(const Operation& op, int rank);

  // Returns the slice of the input of rank `from` that rank `to` takes, where
  // the operation does without slots.
  Slice LentSlice(int from, int to) const;

  Slice ChunkOf(const Slice& slice, int64_t k) const {
    return {slice.first + k * region,
            std::clamp<int64_t>(slice.bytes - k * region, 0, region)};
  }

  // The slices of `in` that this rank puts into its slot: one for each rank
  // that takes it, each in a region of its own; or a single one, for all ranks.
  // If a rank may give several inputs of a reduction, these are slices of each
  // input, and each has that number of regions.
  std::vector<Slice> give;
  // The slices of `out` that this rank takes, by the rank that gives them.
  // Reductions do not use it.
  std::vector<Slice> take;

  bool reduces = false;
  // True if each rank reduces the slice that it alone takes, puts the result
  // into its next slot, and takes the results of the others a step later.
  bool shares_results = false;

  int64_t regions_at = 0;  // the offset in the slot at which regions begin
  int64_t region = 0;      // the bytes of a region, and so of a chunk
  int64_t inputs = 1;      // the regions of a slice
  int64_t chunks = 0;
  int64_t steps = 0;  // 0 if they are not known yet

  const int64_t small_bytes;

 private:
  void SetReduction(const Operation& op, int size);
  int64_t SetMoves(const Operation& op, int rank, int size);
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_SHM_SLOT_PLAN_H_
