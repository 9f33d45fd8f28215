// A Sampler walks an order and gives one rank its rows, step by step.
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
//       for (int64_t index : batch.indices.first(batch.valid)) Train(index);
//     }
//   }
//
// All ranks take the same number of steps. The epoch is always an argument, so
// that nobody trains on epoch 0 for ever because he forgot to set it.
#ifndef LOCKSTEP_SAMPLER_SAMPLER_H_
#define LOCKSTEP_SAMPLER_SAMPLER_H_

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
  // How the stream is cut and dealt. cut.world counts the groups of ranks that
  // get different data: all ranks, unless some are replicas.
  CutOptions cut;

  // This rank, of cut.world * replicas.
  int64_t rank = 0;

  // Ranks that must see the same data, as in tensor or pipeline parallel jobs:
  // how many share each part.
  int64_t replicas = 1;

  // How far apart in rank those with different data are. 1: ranks 0, 1, 2, ...
  // differ, and the pattern repeats (pipeline stages outermost). As many as
  // there are replicas: neighbours are alike (tensor parallel ranks innermost).
  // Rank r gets part r / data_stride % cut.world.
  int64_t data_stride = 1;
};

// One rank's share of one step. The spans live until the next call of Next.
struct BatchIndices {
  int64_t epoch = 0;
  int64_t step = 0;  // in the epoch, from 0

  // The dataset indices: data first, then padding. Masked rows are -1.
  absl::Span<const int64_t> indices;

  // indices[0, valid) are data.
  int64_t valid = 0;

  // Each row's position in the stream, for random numbers that belong to a
  // place and not to a sample. Rows that are not data have positions beyond the
  // stream's end.
  absl::Span<const int64_t> positions;

  // What to save once this batch was delivered.
  Progress progress;
};

struct RestoreOptions {
  // Fields of the order in which the state may differ, by the names of
  // OrderDescription. Leave it empty unless the stream is meant to change.
  std::vector<std::string> allow_different;
};

// What became of the epoch's positions, over all ranks, since StartEpoch or
// RestoreState.
struct SamplerStats {
  int64_t delivered = 0;  // as data, each once
  int64_t dropped = 0;    // by the tail policy
  int64_t skipped = 0;    // by Skip
  int64_t padded = 0;     // rows that are no data, padding and masked ones
};

// Thread-safety: thread-compatible.
class Sampler {
 public:
  // INVALID_ARGUMENT names the option that is wrong, in PyTorch's words where
  // it has some.
  static absl::StatusOr<std::unique_ptr<Sampler>> Create(
      std::shared_ptr<const Order> order, const SamplerOptions& options);

  // Goes to the start of an epoch. `prepared` may be the epoch's stream, opened
  // and prepared ahead by the caller.
  absl::Status StartEpoch(int64_t epoch,
                          std::unique_ptr<IndexStream> prepared = nullptr);

  // Fills `batch` with the next step and returns true, or returns false at the
  // end of the epoch. FAILED_PRECONDITION before the first StartEpoch or
  // RestoreState. Allocates nothing once the order's stream is warm, but for
  // orders that rearrange, at each window.
  absl::StatusOr<bool> Next(BatchIndices& batch);

  // How many steps the epoch still has. Constant time, but for orders that
  // group, which must look through their stream.
  absl::StatusOr<int64_t> StepsLeft();

  // The same from where a state of this order was saved, whose epoch is opened
  // for it. Only the order and the options are looked at, so that another
  // thread may be in any other call.
  absl::StatusOr<int64_t> StepsLeftFrom(absl::string_view bytes) const;

  // Leaves out positions [begin, end) of the present epoch, none of which may
  // have been delivered. Every rank must do the same.
  absl::Status Skip(int64_t begin, int64_t end);

  // The state after the last batch, or after any batch of this epoch.
  std::string SaveState() const { return SaveState(progress_); }
  std::string SaveState(const Progress& progress) const;

  // Goes on where a state was saved, on any rank, at any world and batch size.
  absl::Status RestoreState(absl::string_view bytes,
                            const RestoreOptions& options = {});

  const Order& order() const { return *order_; }
  const SamplerOptions& options() const { return options_; }
  const Progress& progress() const { return progress_; }
  const SkipRanges& skipped() const { return skip_; }
  const SamplerStats& stats() const { return stats_; }

  // The most rows that a batch can have.
  int64_t max_rows() const { return MaxRows(options_.cut); }

  // What ranks compare before they start: the order's fields and how it is cut.
  Fingerprint JobFingerprint() const;

 private:
  friend class IterationSampler;

  Sampler(std::shared_ptr<const Order> order, const SamplerOptions& options);

  // Goes past `steps` steps of the epoch, which has as many, without reading
  // them.
  absl::Status PassSteps(int64_t steps);

  // The segment of the next position, in numbers of kept positions.
  struct Rest {
    CutOptions options;  // with the segment's limit of rows
    int64_t begin, next, end;
  };
  absl::StatusOr<Rest> RestOfSegment(int64_t next) const;
  absl::Status FillBatch(const Rest& rest, const Cut& cut, BatchIndices& batch);
  absl::Status ReadKept(int64_t first, int64_t stride,
                        absl::Span<int64_t> indices,
                        absl::Span<int64_t> positions);
  void MoveTo(int64_t next);
  int64_t kept() const { return skip_.ToKept(stream_->size()); }

  const std::shared_ptr<const Order> order_;
  const SamplerOptions options_;
  const int64_t data_rank_;
  std::unique_ptr<IndexStream> stream_;
  Progress progress_;
  SkipRanges skip_;
  SamplerStats stats_;
  std::vector<int64_t> indices_;
  std::vector<int64_t> positions_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_SAMPLER_H_
