// The arithmetic that cuts a stream into global batches and deals them to
// ranks. Nothing here knows of indices: it is about positions alone.
//
//   CutOptions options;
//   options.batch_size = 4;
//   options.world = 2;
//   Cut cut = NextCut(options, /*rest=*/21);     // 8 positions, 4 rows a rank
//   Share share = ShareOf(options, cut, /*rank=*/1);
//
// A cut depends on nothing but what is left of the stream: that is what makes a
// restart or a resize at any position exact. An order that groups samples has
// segments, parts of the stream whose ends no global batch may cross
// (IndexStream::Segment): then it depends on what is left of the segment.
#ifndef LOCKSTEP_SAMPLER_CUT_H_
#define LOCKSTEP_SAMPLER_CUT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "lockstep/base/language.h"

namespace lockstep {

// What happens at the end, where the last global batch is short. With W ranks
// and `rest` positions left:
enum class Tail {
  // ceil(rest / W) rows each, what is missing wrapped to the front and marked:
  // PyTorch's DistributedSampler.
  kPad,
  // floor(rest / W) rows each, the others dropped and counted: PyTorch's
  // drop_last=True.
  kDrop,
  // ceil(rest / W) or one row less, none padded. A rank may get an empty batch.
  kUneven,
  // Always the full number of rows; the missing ones have index -1, so that
  // shapes stay fixed and every sample counts once.
  kMask,
};

// Which rows of a global batch a rank gets.
enum class Layout {
  // Row i of rank r is position i * W + r: PyTorch's.
  kStrided,
  // Row i of rank r is position r * rows + i. For orders whose neighbours
  // belong together (stratified, mixtures).
  kBlocked,
};

// What becomes of a last batch with fewer rows than min_last_batch.
enum class SmallLastBatch {
  kDrop,    // dropped and counted
  kMerge,   // joined to the batch before it
  kSpread,  // the last two batches share their rows evenly
};

struct CutOptions {
  // Rows a rank and step, up to 2^24.
  int64_t batch_size = 1;

  // BatchSampler's: a last batch with fewer rows on any rank is dropped.
  bool drop_last = false;

  // The fewest rows that a last batch may have on any rank, 0 for any. Set it
  // to 2 for models with BatchNorm, which fails on a batch of 1. At most
  // batch_size. What is left when there is no batch to join is dropped, and so
  // is a segment that the order made smaller.
  int64_t min_last_batch = 0;
  SmallLastBatch small_last_batch = SmallLastBatch::kDrop;

  // Ranks that get different data.
  int64_t world = 1;

  Tail tail = Tail::kPad;
  Layout layout = Layout::kStrided;

  // The most rows a rank may have even when batches are joined, 0 for no limit.
  // Sampler sets it from the order's segments.
  int64_t max_rows = 0;
};

// One step: what all ranks take off the front of what is left.
struct Cut {
  int64_t data = 0;     // positions dealt to ranks; 0: no step, all is dropped
  int64_t dropped = 0;  // positions after them that nobody gets
};

// The next step when `rest` > 0 positions are left.
Cut NextCut(const CutOptions& options, int64_t rest);

// How many steps `rest` positions make.
int64_t CountSteps(const CutOptions& options, int64_t rest);

// A rank's part of a cut.
struct Share {
  int64_t rows;    // rows of its batch
  int64_t valid;   // the first ones, which are data
  int64_t first;   // place of row 0 in the cut
  int64_t stride;  // from one row to the next
};

Share ShareOf(const CutOptions& options, const Cut& cut, int64_t rank);

// The most rows that a batch can have.
int64_t MaxRows(const CutOptions& options);

// INVALID_ARGUMENT names the option, its value and what is accepted.
absl::Status Validate(const CutOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_CUT_H_
