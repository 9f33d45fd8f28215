// The tree along which the shards of a step are added up, so that the sum has
// the same bits whichever rank has which shards. Its shape depends on the
// number of shards alone. This is arithmetic: no value is added up here.
//
//   // This rank has the shards 4 to 8 of 12. It can add up these by itself:
//   std::vector<ShardRange> sums = ShardSumsOf(/*shards=*/12, {4, 9});
//   // {4, 5}, {5, 6} and {6, 9}, which are 4, 5 and (6 + 7) + 8
//
// If there are 3 * 2^n shards, three neighbours each are added up as
// (a + b) + c. If there are 2^n shards, each is on its own. Then two neighbours
// each of these sums are added up, and so on:
//
//                           0 to 11
//                 0 to 5                 6 to 11
//           0 to 2      3 to 5     6 to 8      9 to 11
//          (0+1)+2     (3+4)+5    (6+7)+8    (9+10)+11
#ifndef LOCKSTEP_BASE_SHARD_TREE_H_
#define LOCKSTEP_BASE_SHARD_TREE_H_

#include <cstdint>
#include <vector>

#include "lockstep/base/language.h"

namespace lockstep {

// The shards [begin, end).
struct ShardRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Returns true for the numbers of shards that have a tree: 2^n and 3 * 2^n, up
// to the largest one.
inline constexpr int64_t kMostShards = int64_t{1} << 16;
bool IsShardCount(int64_t shards);

// Returns true if the sum of the shards of `run` occurs in the tree: the sum of
// a single shard, of the first two of three, or of all below one place.
// Requires: IsShardCount(shards), and 0 <= begin < end <= shards.
bool IsShardSum(int64_t shards, const ShardRange& run);

// Appends `next` to sums whose shards come right before it. Then adds the last
// sum to the one before, as long as the tree has the sum of both, and returns
// how often.
// Requires: IsShardSum(shards, next).
int AppendShardSum(int64_t shards, const ShardRange& next,
                   std::vector<ShardRange>& sums);

// Returns the fewest sums of the tree that together have the shards of `run`,
// in their order.
// Requires: IsShardCount(shards), and 0 <= begin <= end <= shards.
std::vector<ShardRange> ShardSumsOf(int64_t shards, const ShardRange& run);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_SHARD_TREE_H_
