#include "lockstep/gradients/exact_sum.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/shard_tree.h"
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
  int64_t waiting = 0;
  for (int64_t end = own_.begin + 1; end <= own_.end; ++end) {
    const auto after =
        static_cast<int64_t>(ShardSumsOf(shards, {own_.begin, end}).size());
    places_.push_back({waiting, waiting + 1 - after});
    waiting = after;
    slots_ = std::max(slots_, waiting);
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
    Convert(from_type, from, to_type, slot(place.slot), count);
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

}  // namespace lockstep::internal_gradients
