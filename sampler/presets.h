// PyTorch's names for Lockstep's samplers, for users who know PyTorch.
//
//   // train_sampler = DistributedSampler(dataset, seed=7)
//   // DataLoader(dataset, batch_size=4, sampler=train_sampler)
//   DistributedSamplerOptions options;
//   options.size = 25;
//   options.num_replicas = 2;
//   options.rank = 0;
//   options.seed = 7;
//   options.batch_size = 4;
//   auto sampler = DistributedSampler(options);
//   absl::Status status = (*sampler)->StartEpoch(epoch);  // set_epoch(epoch)
//
// docs/migrating-from-pytorch.md maps every call.
#ifndef LOCKSTEP_SAMPLER_PRESETS_H_
#define LOCKSTEP_SAMPLER_PRESETS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/iteration_sampler.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/torch_profile.h"
#include "lockstep/sampler/torch_random.h"

namespace lockstep {

using OrderPtr = std::shared_ptr<const Order>;

// Is PyTorch's SequentialSampler(dataset).
absl::StatusOr<OrderPtr> SequentialSampler(int64_t size);

// Is PyTorch's RandomSampler(dataset, replacement, num_samples, generator).
absl::StatusOr<OrderPtr> RandomSampler(const TorchRandomOptions& options);

// Is PyTorch's SubsetRandomSampler(indices, generator).
absl::StatusOr<OrderPtr> SubsetRandomSampler(const TorchSubsetOptions& options);

// Is PyTorch's WeightedRandomSampler(weights, num_samples, replacement=True,
// generator). For draws without replacement use NativeWeighted, since PyTorch's
// differ between machines.
absl::StatusOr<OrderPtr> WeightedRandomSampler(
    const TorchWeightedOptions& options);

// Is PyTorch's BatchSampler(sampler, batch_size, drop_last), on one rank.
absl::StatusOr<std::unique_ptr<Sampler>> BatchSampler(OrderPtr sampler,
                                                      int64_t batch_size,
                                                      bool drop_last);

// The arguments of DistributedSampler, and of the BatchSampler around it.
struct DistributedSamplerOptions {
  int64_t size = 0;
  // An order to deal in place of shuffling `size` samples, as PyTorch's
  // DistributedSampler over another sampler. It must be the same on all ranks.
  OrderPtr inner;

  // The number of ranks that get different data, and this rank.
  int64_t num_replicas = 1;
  int64_t rank = 0;

  bool shuffle = true;
  uint64_t seed = 0;
  bool drop_last = false;
  TorchProfile profile = kNewestTorchProfile;

  // The arguments of the BatchSampler around it.
  int64_t batch_size = 1;
  bool drop_last_batch = false;

  // PyTorch has no names for these: the ranks that get the same data, the
  // distance between ranks that do not, and the shards into which each step is
  // cut (SamplerOptions::replicas and data_stride, CutOptions::shards). With
  // shards, batch_size is the rows of each, and the shards are what PyTorch
  // deals to as many ranks.
  int64_t same_data = 1;
  int64_t data_stride = 1;
  int64_t shards = 0;
};

// Is PyTorch's DistributedSampler(dataset, num_replicas, rank, shuffle, seed,
// drop_last), in a BatchSampler.
absl::StatusOr<std::unique_ptr<Sampler>> DistributedSampler(
    const DistributedSamplerOptions& options);

// The result of make_data_sampler, as in maskrcnn-benchmark: an order, and the
// place of this rank among the ranks that share it.
struct DataSampler {
  OrderPtr order;
  int64_t world = 1;
  int64_t rank = 0;
};

// A rank and the number of ranks.
struct Ranks {
  int64_t world = 1;
  int64_t rank = 0;
};

// Is make_data_sampler(dataset, shuffle, distributed). With ranks it has the
// order of DistributedSampler. Without, it is RandomSampler (after
// torch.manual_seed(seed)) or SequentialSampler.
absl::StatusOr<DataSampler> MakeDataSampler(int64_t size, bool shuffle,
                                            std::optional<Ranks> distributed,
                                            uint64_t seed = 0);

struct BatchDataSamplerOptions {
  int64_t images_per_batch = 1;  // for each rank

  // For aspect grouping: each batch has images between the same two of these
  // ratios of height to width. If it is empty, images are not grouped.
  std::vector<double> aspect_grouping;
  std::vector<double> aspect_ratios;  // of each image, for grouping
};

// Is make_batch_data_sampler(dataset, sampler, aspect_grouping,
// images_per_batch).
absl::StatusOr<std::unique_ptr<Sampler>> MakeBatchSampler(
    const DataSampler& data, const BatchDataSamplerOptions& options);

// Does the same with num_iters and start_iter (IterationBasedBatchSampler).
absl::StatusOr<std::unique_ptr<IterationSampler>> MakeIterationBatchSampler(
    const DataSampler& data, const BatchDataSamplerOptions& options,
    int64_t num_iters, int64_t start_iter = 0);

// Is random_split(dataset, lengths) with a generator seeded by `seed`. Returns
// the indices of each part; SubsetOrder makes an order from them.
absl::StatusOr<std::vector<std::vector<int64_t>>> RandomSplit(
    absl::Span<const int64_t> lengths, uint64_t seed,
    TorchProfile profile = kNewestTorchProfile);

// Returns the lengths that random_split makes from fractions of `size`.
// Requires: each fraction is from 0 to 1, and together they add up to 1.
absl::StatusOr<std::vector<int64_t>> SplitLengths(
    int64_t size, absl::Span<const double> fractions);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_PRESETS_H_
