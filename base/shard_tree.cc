#include "lockstep/base/shard_tree.h"

#include <cstdint>
#include <vector>

namespace lockstep {
namespace {

bool IsPowerOfTwo(int64_t number) { return (number & (number - 1)) == 0; }

}  // namespace

bool IsShardCount(int64_t shards) {
  if (shards < 1 || shards > kMostShards) return false;
  return IsPowerOfTwo(shards % 3 == 0 ? shards / 3 : shards);
}

bool IsShardSum(int64_t shards, const ShardRange& run) {
  const int64_t count = run.end - run.begin;
  const int64_t leaf = shards % 3 == 0 ? 3 : 1;
  if (count < leaf) return count == 1 || run.begin % leaf == 0;
  return count % leaf == 0 && IsPowerOfTwo(count / leaf) &&
         run.begin % count == 0;
}

int AppendShardSum(int64_t shards, const ShardRange& next,
                   std::vector<ShardRange>& sums) {
  sums.push_back(next);
  int joins = 0;
  while (sums.size() > 1) {
    const ShardRange both = {sums[sums.size() - 2].begin, next.end};
    if (!IsShardSum(shards, both)) break;
    sums.pop_back();
    sums.back() = both;
    ++joins;
  }
  return joins;
}

std::vector<ShardRange> ShardSumsOf(int64_t shards, const ShardRange& run) {
  std::vector<ShardRange> sums;
  for (int64_t shard = run.begin; shard < run.end; ++shard) {
    AppendShardSum(shards, {shard, shard + 1}, sums);
  }
  return sums;
}

}  // namespace lockstep
