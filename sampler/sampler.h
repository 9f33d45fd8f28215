// A Sampler reads an order and gives one rank its rows, step by step.
//
//   TorchShuffleOptions shuffle;
//   shuffle.size = 25;
//   SamplerOptions options;
//   options.cut.batch_size = 4;
//   options.cut.world = 2;
//   options.rank = 0;
//   auto sampler = Sampler::Create(*TorchShuffle::Create(shuffle), options);
//   for (int64_t epoch = 0; epoch < 2; ++epoch) {
//     LOCKSTEP_RETURN_IF_ERROR((*sampler)->StartEpoch(epoch));
//     BatchIndices batch;
//     while (*(*sampler)->Next(batch)) {
//       for (int64_t index : batch.indices.first(batch.samples())) {
//         Train(index);
//       }
//     }
//   }
//
// All ranks take the same number of steps. The epoch is always an argument, so
// a job can't train on epoch 0 forever because it forgot to set the epoch.
#ifndef LOCKSTEP_SAMPLER_SAMPLER_H_
#define LOCKSTEP_SAMPLER_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/skip_ranges.h"
#include "lockstep/sampler/state.h"

namespace lockstep {

struct SamplerOptions {
  // The options of cutting and dealing the stream. cut.world is the number of
  // groups of ranks that get different data. It is the number of all ranks,
  // unless some are replicas. With cut.shards, the rows of a step are the same
  // on any number of ranks, cut into the same shards.
  CutOptions cut;

  // This rank, below cut.world * replicas.
  int64_t rank = 0;

  // The number of ranks that share each part of the data, as in jobs with
  // tensor or pipeline parallelism.
  int64_t replicas = 1;

  // The distance between ranks with different data; it divides `replicas`. With
  // 1, the ranks 0, 1, 2, ... differ and the pattern repeats (pipeline stages
  // are outermost). With the number of replicas, neighbours get the same data
  // (tensor parallel ranks are innermost). Rank r gets part r / data_stride %
  // cut.world.
  int64_t data_stride = 1;
};

// The rows of one shard, among those of a rank.
struct ShardRows {
  int64_t shard = 0;  // its number, from 0

  // The rows [begin, begin + valid) are data, and the rows [padding_begin,
  // padding_begin + padding) are not.
  int64_t begin = 0;
  int64_t valid = 0;
  int64_t padding_begin = 0;
  int64_t padding = 0;
};

// One rank's share of one step. The spans are valid until the next call of
// Next.
struct BatchIndices {
  int64_t epoch = 0;
  int64_t step = 0;  // in the epoch, from 0

  // The dataset indices, data first, then padding. Masked rows have index -1.
  // With several shards, the data of all of them comes first.
  absl::Span<const int64_t> indices;

  // If rows have several samples (packed.h): one number more than there are
  // rows. Row i has the samples from indices[splits[i]] to
  // indices[splits[i + 1] - 1], and masked rows have none. Otherwise it is
  // empty, and row i has sample indices[i].
  absl::Span<const int64_t> splits;

  // The number of rows that are data; they come first.
  int64_t valid = 0;

  // This rank's shards, in ascending order: one, unless CutOptions::shards is
  // set. A shard may be without rows.
  absl::Span<const ShardRows> shards;

  // The largest number of rows of any shard of this step, and the largest
  // number of shards of any rank.
  int64_t most_rows = 0;
  int64_t most_shards = 1;

  // The position of each index in the stream, for random numbers that depend on
  // the position and not on the sample. Padding and masked rows have positions
  // beyond the end of the stream.
  absl::Span<const int64_t> positions;

  // Return the number of rows, and that of the indices that are data, which are
  // the first ones.
  int64_t rows() const {
    return static_cast<int64_t>(splits.empty() ? indices.size()
                                               : splits.size() - 1);
  }
  int64_t samples() const { return SamplesBefore(valid); }

  // Returns the number of indices in the rows before `row`, up to rows().
  int64_t SamplesBefore(int64_t row) const {
    return splits.empty() ? row : splits[static_cast<size_t>(row)];
  }

  // The progress to save after this batch was delivered.
  SamplerProgress progress;
};

struct RestoreOptions {
  // The fields of the order in which the state may differ, by their names in
  // OrderDescription, and "shards" for CutOptions::shards. Leave it empty
  // unless the stream, or the way in which it is cut, is meant to change.
  std::vector<std::string> allow_different;
};

// Counts of the epoch's positions, over all ranks, since StartEpoch or
// RestoreState.
struct SamplerStats {
  int64_t delivered = 0;  // positions delivered as data, each once
  int64_t dropped = 0;    // positions dropped by the tail policy
  int64_t skipped = 0;    // positions left out by Skip
  int64_t padded = 0;     // rows that are no data, padded or masked
};

// Gives one rank its rows.
// Thread-safety: thread-compatible.
class Sampler {
 public:
  // Fails with INVALID_ARGUMENT, which names the wrong option, in PyTorch's
  // words where PyTorch has such an error.
  static absl::StatusOr<std::unique_ptr<Sampler>> Create(
      std::shared_ptr<const Order> order, const SamplerOptions& options);

  // Moves to the start of an epoch. `prepared` may be the stream of that epoch,
  // which the caller has opened and prepared ahead of time. INVALID_ARGUMENT if
  // the epoch is negative.
  absl::Status StartEpoch(int64_t epoch,
                          std::unique_ptr<IndexStream> prepared = nullptr);

  // Fills `batch` with the next step and returns true, or returns false at the
  // end of the epoch. FAILED_PRECONDITION before the first StartEpoch or
  // RestoreState. Allocates nothing after the first reads of the stream, except
  // in orders that rearrange windows, which allocate at each window, and in
  // mixtures, which allocate when a part comes anew.
  absl::StatusOr<bool> Next(BatchIndices& batch);

  // Returns the number of steps that the epoch still has. This takes constant
  // time, except in orders that group samples, which must read their stream.
  absl::StatusOr<int64_t> StepsLeft();

  // Moves past `steps` steps of the epoch without reading their indices, and
  // counts their positions (stats). It takes as long as StepsLeft.
  // Requires: the epoch has as many steps left.
  absl::Status PassSteps(int64_t steps);

  // Returns the number of steps that the epoch of a saved state still has, and
  // opens that epoch for it. It uses only the order and the options, so another
  // thread may be in any other call meanwhile.
  absl::StatusOr<int64_t> StepsLeftFrom(absl::string_view bytes) const;
  absl::StatusOr<int64_t> StepsLeftFrom(SamplerState state) const;

  // Leaves out the positions [begin, end) of the current epoch. OUT_OF_RANGE if
  // one of them was delivered or lies beyond the stream. Every rank must do the
  // same.
  absl::Status Skip(int64_t begin, int64_t end);

  // Returns the state after the last batch, or after any batch of this epoch.
  std::string SaveState() const { return SaveState(progress_); }
  std::string SaveState(const SamplerProgress& progress) const;

  // Continues from a saved state, on any rank, and with any world and batch
  // size. If it has a number of shards, this sampler has as many
  // (CutOptions::shards).
  absl::Status RestoreState(absl::string_view bytes,
                            const RestoreOptions& options = {});

  // Does the same with a state that is not in bytes. Requires a position and
  // numbers of steps that are not negative, as DecodeState returns them.
  absl::Status RestoreState(SamplerState state,
                            const RestoreOptions& options = {});

  const Order& order() const { return *order_; }
  const SamplerOptions& options() const { return options_; }
  const SamplerProgress& progress() const { return progress_; }
  const SkipRanges& skipped() const { return skip_; }
  const SamplerStats& stats() const { return stats_; }

  // Returns the largest number of rows that a shard can have.
  int64_t max_rows() const { return MaxRows(options_.cut); }

  // Returns the fingerprint that ranks compare before they start. It has the
  // fields of the order and of the cut.
  Fingerprint JobFingerprint() const;

  // Returns the fingerprint of the settings that should be the same after a
  // restart, for Checkpoint::set_job. A job may continue on another number of
  // ranks. So the fingerprint has the number of samples in a step of all ranks,
  // and neither the number of ranks nor the batch size of one rank.
  Fingerprint DataFingerprint() const;

 private:
  friend class IterationSampler;

  Sampler(std::shared_ptr<const Order> order, const SamplerOptions& options);

  // The numbers of a shard's rows that are not data: `first`, `first` +
  // `stride` and so on. They count such rows of all shards in a segment.
  struct Padding {
    int64_t first;
    int64_t stride;
  };
  // The segment of the next position, counted in rows. A row is a kept
  // position, or, in packed orders, some of them; `row_ends` then has the kept
  // positions after each row of the segment, and rows count from its beginning.
  struct Rest {
    CutOptions options;  // with the segment's limits of rows
    int64_t begin, next, end;
    int64_t first_position = 0;
    absl::Span<const int64_t> row_ends;

    // Returns the first kept position of a row.
    int64_t PositionOf(int64_t row) const {
      if (row_ends.empty()) return row;
      return row == 0 ? first_position : row_ends[static_cast<size_t>(row) - 1];
    }
  };
  absl::StatusOr<Rest> RestOfSegment(int64_t next);
  void FindRows(const IndexStream::Segment& segment, int64_t next, Rest& rest);
  void KeepEnds(const IndexStream::Segment& segment, int64_t begin,
                int64_t middle);
  void CountPadding(const Rest& rest, const Cut& cut);
  void Pass(const Rest& rest, const Cut& cut);
  absl::Status FillBatch(const Rest& rest, const Cut& cut, BatchIndices& batch);
  static Padding PaddingOf(const Rest& rest, const Cut& cut, int64_t shard);
  absl::Status FillRows(const Rest& rest, const Cut& cut, int64_t rows);
  absl::Status ReadRows(const Rest& rest, const Cut& cut);
  absl::Status FillPacked(const Rest& rest, const Cut& cut);
  absl::Status AddPackedRow(const Rest& rest, int64_t row, int64_t round);
  absl::Status ReadKept(int64_t first, int64_t stride,
                        absl::Span<int64_t> indices,
                        absl::Span<int64_t> positions);
  void MoveTo(int64_t next);
  int64_t kept() const { return skip_.ToKept(stream_->size()); }

  const std::shared_ptr<const Order> order_;
  const SamplerOptions options_;
  const ShardRange own_shards_;
  std::unique_ptr<IndexStream> stream_;
  SamplerProgress progress_;
  SkipRanges skip_;
  SamplerStats stats_;
  std::vector<int64_t> indices_;
  std::vector<int64_t> positions_;
  std::vector<int64_t> neighbours_;  // of a row of all shards, while it is read
  std::vector<ShardRows> shards_;
  std::vector<int64_t> splits_;     // of packed rows
  std::vector<int64_t> kept_ends_;  // of packed rows, if positions are skipped
  int64_t kept_ends_of_ = -1;       // the beginning of their segment, or -1
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_SAMPLER_H_
