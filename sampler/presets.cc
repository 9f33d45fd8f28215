#include "lockstep/sampler/presets.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/check_options.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/torch_generator.h"
#include "lockstep/sampler/torch_permutation.h"
#include "lockstep/sampler/torch_shuffle.h"
#include "lockstep/sampler/windowed.h"

namespace lockstep {

absl::StatusOr<OrderPtr> SequentialSampler(int64_t size) {
  return SequentialOrder::Create(size);
}

absl::StatusOr<OrderPtr> RandomSampler(const TorchRandomOptions& options) {
  return TorchRandom::Create(options);
}

absl::StatusOr<OrderPtr> SubsetRandomSampler(
    const TorchSubsetOptions& options) {
  return TorchSubset::Create(options);
}

absl::StatusOr<OrderPtr> WeightedRandomSampler(
    const TorchWeightedOptions& options) {
  return TorchWeighted::Create(options);
}

absl::StatusOr<std::unique_ptr<Sampler>> BatchSampler(OrderPtr sampler,
                                                      int64_t batch_size,
                                                      bool drop_last) {
  SamplerOptions options;
  options.cut.batch_size = batch_size;
  options.cut.drop_last = drop_last;
  return Sampler::Create(std::move(sampler), options);
}

absl::StatusOr<std::unique_ptr<Sampler>> DistributedSampler(
    const DistributedSamplerOptions& options) {
  OrderPtr order = options.inner;
  if (order == nullptr && options.shuffle) {
    TorchShuffleOptions shuffle;
    shuffle.size = options.size;
    shuffle.seed = options.seed;
    shuffle.profile = options.profile;
    LOCKSTEP_ASSIGN_OR_RETURN(order, TorchShuffle::Create(shuffle));
  } else if (order == nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(order, SequentialOrder::Create(options.size));
  }
  SamplerOptions sampler;
  sampler.cut.batch_size = options.batch_size;
  sampler.cut.drop_last = options.drop_last_batch;
  sampler.cut.world = options.num_replicas;
  sampler.cut.shards = options.shards;
  sampler.cut.tail = options.drop_last ? Tail::kDrop : Tail::kPad;
  if (order->NeedsBlockedLayout()) sampler.cut.layout = Layout::kBlocked;
  sampler.rank = options.rank;
  sampler.replicas = options.same_data;
  sampler.data_stride = options.data_stride;
  return Sampler::Create(std::move(order), sampler);
}

absl::StatusOr<DataSampler> MakeDataSampler(int64_t size, bool shuffle,
                                            std::optional<Ranks> distributed,
                                            uint64_t seed) {
  DataSampler data;
  if (distributed) {
    data.world = distributed->world;
    data.rank = distributed->rank;
  }
  if (!shuffle) {
    LOCKSTEP_ASSIGN_OR_RETURN(data.order, SequentialOrder::Create(size));
  } else if (distributed) {
    TorchShuffleOptions options;
    options.size = size;
    options.seed = seed;
    LOCKSTEP_ASSIGN_OR_RETURN(data.order, TorchShuffle::Create(options));
  } else {
    TorchRandomOptions options;
    options.size = size;
    options.seed = seed;
    options.generator = TorchGeneratorUse::kDefault;
    LOCKSTEP_ASSIGN_OR_RETURN(data.order, TorchRandom::Create(options));
  }
  return data;
}

absl::StatusOr<std::unique_ptr<Sampler>> MakeBatchSampler(
    const DataSampler& data, const BatchDataSamplerOptions& options) {
  SamplerOptions sampler;
  sampler.cut.batch_size = options.images_per_batch;
  sampler.cut.world = data.world;
  sampler.rank = data.rank;
  LOCKSTEP_RETURN_IF_ERROR(Validate(sampler.cut));
  OrderPtr order = data.order;
  if (!options.aspect_grouping.empty()) {
    GroupedOptions grouped;
    grouped.window.inner = data.order;
    grouped.window.global_batch = options.images_per_batch * data.world;
    std::vector<double> edges = options.aspect_grouping;
    std::sort(edges.begin(), edges.end());
    grouped.groups = AspectGroups(options.aspect_ratios, edges);
    LOCKSTEP_ASSIGN_OR_RETURN(order, GroupedOrder::Create(std::move(grouped)));
  }
  return Sampler::Create(std::move(order), sampler);
}

absl::StatusOr<std::unique_ptr<IterationSampler>> MakeIterationBatchSampler(
    const DataSampler& data, const BatchDataSamplerOptions& options,
    int64_t num_iters, int64_t start_iter) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, MakeBatchSampler(data, options));
  return IterationSampler::Create(std::move(sampler), num_iters, start_iter);
}

absl::StatusOr<std::vector<std::vector<int64_t>>> RandomSplit(
    absl::Span<const int64_t> lengths, uint64_t seed, TorchProfile profile) {
  int64_t size = 0;
  for (const int64_t length : lengths) {
    LOCKSTEP_RETURN_IF_ERROR(CheckSize("random_split, a part", length));
    LOCKSTEP_ASSIGN_OR_RETURN(size, AddSizes("random_split", size, length));
  }
  TorchPermutation permutation(size, profile, TorchGenerator(seed));
  LOCKSTEP_RETURN_IF_ERROR(permutation.Prepare());
  std::vector<std::vector<int64_t>> parts;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    parts.emplace_back(length);
    LOCKSTEP_RETURN_IF_ERROR(
        permutation.Read(begin, 1, absl::MakeSpan(parts.back())));
    begin += length;
  }
  return parts;
}

absl::StatusOr<std::vector<int64_t>> SplitLengths(
    int64_t size, absl::Span<const double> fractions) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSize("random_split", size));
  std::vector<int64_t> lengths;
  double sum = 0;
  int64_t given = 0;
  for (size_t i = 0; i < fractions.size(); ++i) {
    if (!(fractions[i] >= 0 && fractions[i] <= 1)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "Fraction at index ", i, " is not between 0 and 1: ", fractions[i]));
    }
    sum += fractions[i];
    if (sum > 1 + 1e-9) break;
    lengths.push_back(static_cast<int64_t>(
        std::floor(static_cast<double>(size) * fractions[i])));
    given += lengths.back();
  }
  if (fractions.empty() || std::abs(sum - 1) > 1e-9 || given > size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Sum of input lengths does not equal the length of the input dataset!",
        " The fractions add up to ", sum, " and must add up to 1"));
  }
  for (size_t i = 0; given < size; ++i, ++given) {
    ++lengths[i % lengths.size()];
  }
  return lengths;
}

}  // namespace lockstep
