#include "lockstep/gradients/exact_sum.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/shard_tree.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/gradients/arithmetic.h"
#include "lockstep/sampler/cut.h"

namespace lockstep::internal_gradients {

ExactSum::ExactSum(int64_t shards, int64_t ranks, int64_t rank) {
  CutOptions cut;
  cut.shards = shards;
  cut.world = ranks;
  for (int64_t each = 0; each < ranks; ++each) {
    const ShardRange run = ShardsOf(cut, each);
    shards_.push_back(run.end - run.begin);
    if (each == rank) own_ = run;
  }
  std::vector<ShardRange> sums;
  for (int64_t shard = own_.begin; shard < own_.end; ++shard) {
    const auto slot = static_cast<int64_t>(sums.size());
    places_.push_back({slot, AppendShardSum(shards, {shard, shard + 1}, sums)});
    slots_ = std::max(slots_, static_cast<int64_t>(sums.size()));
  }
}

void ExactSum::Add(int64_t shard, DType from_type, const void* from,
                   int64_t count, DType to_type, void* slots,
                   int64_t stride) const {
  const Place& place = places_[shard];
  const int64_t bytes = stride * SizeOf(to_type);
  const auto slot = [&](int64_t k) {
    return static_cast<char*>(slots) + k * bytes;
  };
  if (place.joins == 0) {
    // Added to 0, as those are that come to other sums: -0 becomes 0 in both.
    std::memset(slot(place.slot), 0, count * SizeOf(to_type));
    internal_gradients::Add(from_type, from, to_type, slot(place.slot), count);
    return;
  }
  internal_gradients::Add(from_type, from, to_type, slot(place.slot - 1),
                          count);
  for (int64_t join = 1; join < place.joins; ++join) {
    const int64_t second = place.slot - join;
    internal_gradients::Add(to_type, slot(second), to_type, slot(second - 1),
                            count);
  }
}

std::string ExactSum::Describe() const {
  const int64_t all =
      std::accumulate(shards_.begin(), shards_.end(), int64_t{0});
  return count() == 1 ? absl::StrCat("shard ", own_.begin, " of ", all)
                      : absl::StrCat("shards ", own_.begin, " to ",
                                     own_.end - 1, " of ", all);
}

int64_t ExactSum::SumsAfter(int64_t shards) const {
  if (shards == 0) return 0;
  const Place& last = places_[shards - 1];
  return last.slot + 1 - last.joins;
}

absl::StatusOr<std::unique_ptr<const ExactSum>> MakeExactSum(
    int64_t shards, const Communicator& group) {
  if (shards == 0) return nullptr;
  if (!IsShardCount(shards)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "GradientsOptions::shards should be 0 (what ranks bring is added up in "
        "their order), 2^n or 3 * 2^n, such as 8, 12, 16 or 24, and at most ",
        kMostShards, ", but got shards=", shards));
  }
  if (shards < group.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there should be at least as many shards as ranks, ", group.size(),
        ", but got GradientsOptions::shards=", shards,
        ": set more shards, or use fewer ranks"));
  }
  return std::make_unique<const ExactSum>(shards, group.size(), group.rank());
}

}  // namespace lockstep::internal_gradients
