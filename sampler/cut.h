// Cuts a stream into global batches, cuts these into shards, and deals the
// shards to ranks. It computes with positions only, and not with indices.
//
//   CutOptions options;
//   options.batch_size = 4;
//   options.world = 2;
//   Cut cut = NextCut(options, /*rest=*/21);     // 8 positions, 4 rows a shard
//   Share share = ShareOf(options, cut, /*shard=*/1);
//   int64_t parts = CountParts(share.rows, /*micro_batch_size=*/3);     // 2
//   PartRows rows = RowsOfPart(share.rows, parts, /*part=*/0);  // 0 and 1
//
// Each rank gets one shard, unless CutOptions::shards is set. Then the ranks
// get several shards each, and the shards are the same on any number of ranks:
//
//   options.shards = 24;
//   options.world = 5;
//   ShardRange run = ShardsOf(options, /*rank=*/1);             // 5 to 9
//
// A cut depends only on the rest of the stream, so a restart or a resize is
// exact at any position. An order that groups samples has segments, and no
// global batch crosses the end of a segment (IndexStream::Segment). Then the
// cut depends on the rest of the segment.
#ifndef LOCKSTEP_SAMPLER_CUT_H_
#define LOCKSTEP_SAMPLER_CUT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/base/shard_tree.h"  // IWYU pragma: export

namespace lockstep {

// The policy for the last global batch, if it is short. V is the number of
// shards, and `rest` the number of positions left.
enum class Tail {
  // Each shard gets ceil(rest / V) rows. Missing rows wrap to the front and are
  // marked, as in PyTorch's DistributedSampler.
  kPad,
  // Each shard gets floor(rest / V) rows. The others are dropped and counted,
  // as in PyTorch with drop_last=True.
  kDrop,
  // Each shard gets ceil(rest / V) rows or one less, and none is padded. A
  // shard may be empty.
  kUneven,
  // Each shard gets the full number of rows, so the shape stays fixed. Missing
  // rows have index -1, so each sample counts once.
  kMask,
};

// The rows of a global batch that a shard gets.
enum class Layout {
  // Row i of shard v is position i * V + v, as in PyTorch.
  kStrided,
  // Row i of shard v is position v * rows + i. It is for orders whose
  // neighbours belong together (stratified, mixtures).
  kBlocked,
};

// The policy for a last batch that has fewer rows than min_last_batch.
enum class SmallLastBatch {
  kDrop,    // it is dropped and counted
  kMerge,   // it joins the batch before it
  kSpread,  // the last two batches share their rows evenly
};

// The options of cuts.
struct CutOptions {
  // The rows per shard and step, up to 2^24. If `shards` is set, all shards of
  // a step together have up to 2^24.
  int64_t batch_size = 1;

  // True to drop a last batch with fewer rows in any shard, as BatchSampler
  // does.
  bool drop_last = false;

  // The fewest rows that a last batch may have in any shard, or 0 for any; at
  // most batch_size. Set it to 2 for models with BatchNorm, which fails on a
  // batch of 1. A small last batch is dropped if no batch comes before it. So
  // is a segment whose batches the order made smaller.
  int64_t min_last_batch = 0;
  SmallLastBatch small_last_batch = SmallLastBatch::kDrop;

  // The number of ranks that get different data.
  int64_t world = 1;

  Tail tail = Tail::kPad;
  Layout layout = Layout::kStrided;

  // The most rows of a shard even when batches are joined, or 0 for no limit.
  // Sampler sets it from the segments of the order.
  int64_t max_rows = 0;

  // The number of shards into which each step is cut, or 0 for as many as there
  // are ranks. Set it if the rows of a shard must not depend on the number of
  // ranks, which then only decides who gets which shards. Each rank gets
  // shards that follow each other, and the numbers of shards of two ranks
  // differ by at most one. It is 2^n or 3 * 2^n, at most 2^16, and at least
  // `world`: 24 can be dealt evenly to 1, 2, 3, 4, 6, 8, 12 or 24 ranks.
  int64_t shards = 0;

  // Returns the number of shards of a step.
  int64_t CountShards() const { return shards > 0 ? shards : world; }

  // Returns the rows of all shards of a full step.
  int64_t GlobalBatch() const { return batch_size * CountShards(); }
};

// One step: the positions that all shards take together from the front of the
// rest.
struct Cut {
  int64_t data = 0;     // positions for shards; 0: no step, all are dropped
  int64_t dropped = 0;  // positions after them, which no shard gets
};

// Returns the next step. Requires: `rest` > 0 positions are left.
Cut NextCut(const CutOptions& options, int64_t rest);

// Returns the number of steps in `rest` positions.
int64_t CountSteps(const CutOptions& options, int64_t rest);

// One shard's part of a cut.
struct Share {
  int64_t rows;    // the rows of the shard
  int64_t valid;   // the number of first rows that are data
  int64_t first;   // the place of row 0 in the cut
  int64_t stride;  // the distance from row to row
};

Share ShareOf(const CutOptions& options, const Cut& cut, int64_t shard);

// Returns the shards of a rank, below `world`. The first ranks have one more
// than the last ones if `world` does not divide the number of shards.
ShardRange ShardsOf(const CutOptions& options, int64_t rank);

// A rank may take each shard of a step in parts of at most micro_batch_size
// rows, or in one part if that is 0. Returns their number, which is the same
// for every shard. `most_rows` is the largest number of rows of any shard.
int64_t CountParts(int64_t most_rows, int64_t micro_batch_size);

// The rows [begin, end) of a share.
struct PartRows {
  int64_t begin = 0;
  int64_t end = 0;
};

// Spreads the rows of a share over its parts, so that no part has more than one
// row more than another: 17 rows in 3 parts are 6, 6 and 5.
PartRows RowsOfPart(int64_t rows, int64_t parts, int64_t part);

// Returns the largest number of rows that a shard can have.
int64_t MaxRows(const CutOptions& options);

// Fails with INVALID_ARGUMENT, which names the option, its value and the
// accepted values.
absl::Status Validate(const CutOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_CUT_H_
