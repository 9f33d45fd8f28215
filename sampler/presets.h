// PyTorch's names for Lockstep's samplers, for those who know it.
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

// SequentialSampler(dataset).
absl::StatusOr<OrderPtr> SequentialSampler(int64_t size);

// RandomSampler(dataset, replacement, num_samples, generator).
absl::StatusOr<OrderPtr> RandomSampler(const TorchRandomOptions& options);

// SubsetRandomSampler(indices, generator).
absl::StatusOr<OrderPtr> SubsetRandomSampler(const TorchSubsetOptions& options);

// WeightedRandomSampler(weights, num_samples, replacement=True, generator).
// Without replacement PyTorch's draws are not the same from one machine to the
// next; NativeWeighted's are.
absl::StatusOr<OrderPtr> WeightedRandomSampler(
    const TorchWeightedOptions& options);

// BatchSampler(sampler, batch_size, drop_last), on one rank.
absl::StatusOr<std::unique_ptr<Sampler>> BatchSampler(OrderPtr sampler,
                                                      int64_t batch_size,
                                                      bool drop_last);

struct DistributedSamplerOptions {
  int64_t size = 0;
  // Instead of shuffling `size` samples: any order, which all ranks must make
  // alike (DistributedSampler over another sampler).
  OrderPtr inner;

  int64_t num_replicas = 1;
  int64_t rank = 0;
  bool shuffle = true;
  uint64_t seed = 0;
  bool drop_last = false;
  TorchProfile profile = kNewestTorchProfile;

  // Of the BatchSampler around it.
  int64_t batch_size = 1;
  bool drop_last_batch = false;
};

// DistributedSampler(dataset, num_replicas, rank, shuffle, seed, drop_last), in
// a BatchSampler.
absl::StatusOr<std::unique_ptr<Sampler>> DistributedSampler(
    const DistributedSamplerOptions& options);

// What make_data_sampler of maskrcnn-benchmark and its kin returns: an order,
// and this rank's place among those that share it.
struct DataSampler {
  OrderPtr order;
  int64_t world = 1;
  int64_t rank = 0;
};

struct Ranks {
  int64_t world = 1;
  int64_t rank = 0;
};

// make_data_sampler(dataset, shuffle, distributed): DistributedSampler's order
// where there are ranks, and otherwise RandomSampler (with torch.manual_seed
// called with `seed`) or SequentialSampler.
absl::StatusOr<DataSampler> MakeDataSampler(int64_t size, bool shuffle,
                                            std::optional<Ranks> distributed,
                                            uint64_t seed = 0);

struct BatchDataSamplerOptions {
  int64_t images_per_batch = 1;  // a rank

  // aspect_grouping: batches of images between the same two of these ratios of
  // height to width. Empty: no grouping.
  std::vector<double> aspect_grouping;
  std::vector<double> aspect_ratios;  // of each image, when grouping
};

// make_batch_data_sampler(dataset, sampler, aspect_grouping, images_per_batch).
absl::StatusOr<std::unique_ptr<Sampler>> MakeBatchSampler(
    const DataSampler& data, const BatchDataSamplerOptions& options);

// The same with num_iters and start_iter (IterationBasedBatchSampler).
absl::StatusOr<std::unique_ptr<IterationSampler>> MakeIterationBatchSampler(
    const DataSampler& data, const BatchDataSamplerOptions& options,
    int64_t num_iters, int64_t start_iter = 0);

// random_split(dataset, lengths, generator seeded by `seed`): the indices of
// each part. SubsetOrder makes a sampler of one.
absl::StatusOr<std::vector<std::vector<int64_t>>> RandomSplit(
    absl::Span<const int64_t> lengths, uint64_t seed,
    TorchProfile profile = kNewestTorchProfile);

// The lengths that random_split makes of fractions of `size`, which are each
// from 0 to 1 and add up to 1.
absl::StatusOr<std::vector<int64_t>> SplitLengths(
    int64_t size, absl::Span<const double> fractions);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_PRESETS_H_
