#include "lockstep/collective/shm/slot_plan.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/collective/shm/shm_layout.h"

namespace lockstep::internal_collective {
namespace {

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Cuts a vector into slices that are about equal and begin with cache lines.
void SetEvenSlices(int64_t count, int64_t width, int size,
                   std::vector<Slice>& slices) {
  const int64_t bytes = count * width;
  const int64_t part = RoundUp((count + size - 1) / size * width, kCacheLine);
  slices.clear();
  for (int i = 0; i < size; ++i) {
    const int64_t first = std::min(i * part, bytes);
    slices.push_back({first, std::min(part, bytes - first)});
  }
}

int64_t MostOf(const std::vector<int64_t>& counts) {
  return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
}

}  // namespace

bool SlotPlan::HasRoom(int size, int64_t most_inputs) {
  return most_inputs <= kSlotBytes / kCacheLine / size;
}

void SlotPlan::Set(const Operation& op, int rank, int size,
                   int64_t most_inputs) {
  give.assign(1, Slice());
  take.assign(size, Slice());
  reduces = Reduces(op.kind);
  inputs = most_inputs;
  shares_results = false;
  regions_at = 0;
  steps = 0;
  int64_t largest = 0;
  if (reduces) {
    SetReduction(op, size);
    largest = LargestOf(give);
  } else {
    largest = SetMoves(op, rank, size);
  }
  region = (kSlotBytes - regions_at) / static_cast<int64_t>(give.size()) /
           inputs / kCacheLine * kCacheLine;
  if (op.kind != OpKind::kAllToAll) SetSteps(largest);
}

bool SlotPlan::Gives(const Operation& op, int rank) {
  switch (op.kind) {
    case OpKind::kBroadcast:
    case OpKind::kScatter:
      return rank == op.root;
    case OpKind::kGather:
      return rank != op.root && op.recv_counts[rank] > 0;
    case OpKind::kAllGather:
      return op.recv_counts[rank] > 0;
    default:
      return true;
  }
}

Slice SlotPlan::LentSlice(int from, int to) const {
  return for_all() ? Slice{0, take[from].bytes} : give[to];
}

void SlotPlan::SetReduction(const Operation& op, int size) {
  const int64_t width = SizeOf(op.dtype);
  if (op.kind == OpKind::kReduceScatter) {
    SetSlices(std::vector<int64_t>(size, op.out.count), op.dtype, give);
    return;
  }
  const int64_t count = CountOfInput(op);
  if (count * width <= small_bytes / size / inputs) {
    give[0].bytes = count * width;
  } else {
    shares_results = true;
    SetEvenSlices(count, width, size, give);
  }
}

// Returns the bytes of the largest slice of any rank, or 0 for an all-to-all,
// for which this rank does not know them.
int64_t SlotPlan::SetMoves(const Operation& op, int rank, int size) {
  const int64_t width = SizeOf(op.dtype);
  const Slice all_in = {0, op.in.count * width};
  const Slice all_out = {0, op.out.count * width};
  switch (op.kind) {
    case OpKind::kBroadcast:
      if (rank == op.root) give[0] = all_in;
      take[op.root] = all_out;
      return all_out.bytes;
    case OpKind::kAllGather:
    case OpKind::kGather:
      if (op.kind == OpKind::kAllGather || rank == op.root) {
        SetSlices(op.recv_counts, op.dtype, take);
      }
      if (rank != op.root) give[0] = all_in;
      return MostOf(op.recv_counts) * width;
    case OpKind::kScatter:
      SetSlices(op.send_counts, op.dtype, give);
      take[op.root] = all_out;
      return LargestOf(give);
    case OpKind::kAllToAll:
      SetSlices(op.send_counts, op.dtype, give);
      SetSlices(op.recv_counts, op.dtype, take);
      // The counts of this rank stand before the bytes that it sends.
      regions_at = RoundUp(2 * size * sizeof(int64_t), kCacheLine);
      return 0;
    default:
      return 0;
  }
}

void SlotPlan::SetSteps(int64_t largest) {
  chunks = std::max<int64_t>(1, (largest + region - 1) / region);
  // Results come a step later.
  steps = chunks + (shares_results ? 1 : 0);
}

}  // namespace lockstep::internal_collective
