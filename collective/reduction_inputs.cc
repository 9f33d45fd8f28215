#include "lockstep/collective/reduction_inputs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/shard_tree.h"
#include "lockstep/collective/reduce.h"

namespace lockstep::internal_collective {
namespace {

// The elements that are added up at a time. So all sums that wait stay in the
// first-level cache.
constexpr int64_t kBlock = 1024;

}  // namespace

void ReductionInputs::BeginOneEach(int size) {
  shards_.clear();
  most_ = 1;
  firsts_.resize(size + 1);
  std::iota(firsts_.begin(), firsts_.end(), 0);
  inputs_.resize(size);
}

void ReductionInputs::Begin(const Operation& op) {
  if (op.kind == OpKind::kAllReduceShards) {
    if (shards_ != op.recv_counts) BeginShards(op.recv_counts);
  } else if (!shards_.empty()) {
    BeginOneEach(static_cast<int>(firsts_.size()) - 1);
  }
}

void ReductionInputs::BeginShards(const std::vector<int64_t>& shards) {
  shards_ = shards;
  const int64_t all = std::accumulate(shards.begin(), shards.end(), int64_t{0});
  firsts_.assign(1, 0);
  most_ = 0;
  joins_.clear();
  std::vector<ShardRange> waiting;
  size_t most_waiting = 0;
  int64_t shard = 0;
  for (const int64_t own : shards) {
    const std::vector<ShardRange> sums = ShardSumsOf(all, {shard, shard + own});
    for (const ShardRange& sum : sums) {
      most_waiting = std::max(most_waiting, waiting.size() + 1);
      joins_.push_back(AppendShardSum(all, sum, waiting));
    }
    shard += own;
    most_ = std::max(most_, static_cast<int64_t>(sums.size()));
    firsts_.push_back(static_cast<int64_t>(joins_.size()));
  }
  inputs_.resize(joins_.size());
  sums_.resize(most_waiting);
  blocks_.resize(most_waiting * kBlock);
}

void ReductionInputs::Reduce(const Operation& op, int64_t count,
                             absl::Span<void* const> outs) {
  if (op.kind == OpKind::kAllReduceShards) {
    ReduceShards(op.dtype, count, outs);
  } else {
    ReduceInOrder(op.dtype, op.op, op.scale, inputs_, count, outs);
  }
}

void ReductionInputs::ReduceShards(DType dtype, int64_t count,
                                   absl::Span<void* const> outs) {
  const int64_t width = SizeOf(dtype);
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t now = std::min(kBlock, count - first);
    const auto at = [&](const void* data) {
      return static_cast<const char*>(data) + first * width;
    };
    void* const out = static_cast<char*>(outs[0]) + first * width;
    size_t waiting = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      sums_[waiting++] = at(inputs_[i]);
      for (int join = 0; join < joins_[i]; ++join) {
        --waiting;
        // An output may be an input, so it is written last.
        const bool is_last = i + 1 == inputs_.size() && join + 1 == joins_[i];
        void* const to = is_last ? out : &blocks_[(waiting - 1) * kBlock];
        ReduceInOrder(dtype, ReduceOp::kSum, /*scale=*/1,
                      {sums_[waiting - 1], sums_[waiting]}, now, {to});
        sums_[waiting - 1] = to;
      }
    }
    LOCKSTEP_CHECK(waiting == 1);
    const auto bytes = static_cast<size_t>(now * width);
    if (sums_[0] != out) std::memcpy(out, sums_[0], bytes);
    for (void* const other : outs.subspan(1)) {
      std::memcpy(static_cast<char*>(other) + first * width, out, bytes);
    }
  }
}

}  // namespace lockstep::internal_collective
