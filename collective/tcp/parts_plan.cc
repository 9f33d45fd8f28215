#include "lockstep/collective/tcp/parts_plan.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lockstep/base/dtype.h"

namespace lockstep::internal_collective {
namespace {

// A piece of kPieceBytes is still in the cache when it is reduced. If there are
// many inputs, pieces are smaller than that, so that the staging memory has at
// most kMostStagingBytes, unless kLeastPieceBytes for each input is more.
constexpr int64_t kPieceBytes = 128 << 10;
constexpr int64_t kLeastPieceBytes = 32 << 10;
constexpr int64_t kMostStagingBytes = 32 << 20;

// Cuts a vector into slices that are about equal and begin with cache lines.
std::vector<Slice> EvenSlices(int64_t bytes, int size) {
  const int64_t lines = (bytes + kCacheLine - 1) / kCacheLine;
  std::vector<Slice> slices;
  for (int i = 0; i < size; ++i) {
    const int64_t first = std::min(bytes, lines * i / size * kCacheLine);
    const int64_t end = std::min(bytes, lines * (i + 1) / size * kCacheLine);
    slices.push_back({first, end - first});
  }
  return slices;
}

}  // namespace

int64_t PieceBytes(int64_t inputs) {
  return std::clamp(
      kMostStagingBytes / kPiecesAhead / inputs / kCacheLine * kCacheLine,
      kLeastPieceBytes, kPieceBytes);
}

PartsPlan::PartsPlan(const Operation& op, int rank, int size, int64_t inputs)
    : kind(op.kind),
      root(op.root),
      reduces(op.kind != OpKind::kBroadcast),
      piece(PieceBytes(inputs)) {
  if (kind == OpKind::kReduceScatter) {
    parts = SlicesOf(std::vector<int64_t>(size, op.out.count), op.dtype);
  } else {
    const int64_t count = reduces ? CountOfInput(op) : op.out.count;
    parts = EvenSlices(count * SizeOf(op.dtype), size);
  }
  own = parts[rank];
  stages_result = kind == OpKind::kReduce && rank != root;
  result_at = kind == OpKind::kReduceScatter ? 0 : own.first;
  rounds = std::max<int64_t>(1, (LargestOf(parts) + piece - 1) / piece);
}

bool PartsPlan::Wants(int rank) const {
  switch (kind) {
    case OpKind::kBroadcast:
      return rank != root;
    case OpKind::kAllReduce:
    case OpKind::kAllReduceShards:
      return true;
    case OpKind::kReduce:
      return rank == root;
    default:
      return false;  // each rank of a reduce-scatter keeps its result
  }
}

}  // namespace lockstep::internal_collective
