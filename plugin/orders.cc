// Registers the orders of a dataset's samples.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/plugin/options.h"
#include "lockstep/plugin/parts.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/plugin/sampling.h"
#include "lockstep/sampler/block_shuffle.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/native_weighted.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/repeat_factor.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/stratified.h"
#include "lockstep/sampler/torch_profile.h"
#include "lockstep/sampler/torch_random.h"
#include "lockstep/sampler/torch_shuffle.h"
#include "lockstep/sampler/wrapped_orders.h"

namespace lockstep {

bool ReadOption(const Config& config, TorchProfile* value) {
  const auto* const text = config.As<std::string>();
  if (text == nullptr) return false;
  const absl::StatusOr<TorchProfile> profile = ParseTorchProfile(*text);
  if (profile.ok()) *value = *profile;
  return profile.ok();
}

std::optional<Config> WriteOption(TorchProfile value) {
  return Config(Name(value));
}

std::string OptionAccepts(const TorchProfile*) {
  return "a release of PyTorch from 1.13 on, such as \"2.6\"";
}

namespace {

using internal_plugin::BindProfile;
using internal_plugin::BindSeed;

void BindDraws(int64_t& num_samples, OptionTable& table) {
  table.Add("num_samples", &num_samples,
            "The number of samples that are drawn in an epoch; 0: the size of "
            "the dataset.");
}

void BindGenerator(TorchGeneratorUse& generator, bool& persistent_workers,
                   OptionTable& table) {
  table.Add("generator", &generator,
            "The use of PyTorch's generator: only the sampler draws from it; "
            "the DataLoader draws from it, too; or the DataLoader has none, "
            "and PyTorch uses the default one.",
            {{"own", TorchGeneratorUse::kOwn},
             {"shared_with_loader", TorchGeneratorUse::kSharedWithLoader},
             {"default", TorchGeneratorUse::kDefault}});
  table.Add("persistent_workers", &persistent_workers,
            "If true, PyTorch's DataLoader has persistent workers, and so "
            "draws its base seed only in the first epoch.");
}

}  // namespace

void BindOptions(NativeShuffleOptions& options, OptionTable& table) {
  BindSeed(options.seed, table);
}

void BindOptions(TorchShuffleOptions& options, OptionTable& table) {
  BindSeed(options.seed, table);
  BindProfile(options.profile, table);
}

void BindOptions(TorchRandomOptions& options, OptionTable& table) {
  BindSeed(options.seed, table);
  BindProfile(options.profile, table);
  BindDraws(options.num_samples, table);
  table.Add("replacement", &options.replacement,
            "If true, each draw is independent of the others.");
  BindGenerator(options.generator, options.persistent_workers, table);
}

void BindOptions(TorchWeightedOptions& options, OptionTable& table) {
  BindSeed(options.seed, table);
  BindDraws(options.num_samples, table);
  BindGenerator(options.generator, options.persistent_workers, table);
}

void BindOptions(NativeWeightedOptions& options, OptionTable& table) {
  BindSeed(options.seed, table);
  BindDraws(options.num_samples, table);
  table.Add("replacement", &options.replacement,
            "If true, a sample may come more than once in an epoch.");
}

void BindOptions(BlockShuffleOptions& options, OptionTable& table) {
  BindSeed(options.seed, table);
  table.Add("chunk_size", &options.chunk_size,
            "The number of samples that are stored together, in a chunk.");
  table.Add("open_chunks", &options.open_chunks,
            "The number of chunks that are shuffled together.");
}

void BindOptions(RepeatOptions& options, OptionTable& table) {
  table.Add("repeats", &options.repeats,
            "The number of times that each index comes, one after the other.");
  table.Add("keep", &options.keep,
            "The number of positions that are kept; 0: all.");
}

namespace internal_plugin {
namespace {

// ---- Orders of a dataset's samples.

OrderResult MakeSequential(const PluginContext& context, const NoOptions&) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Dataset* const dataset, DatasetOf(context));
  return SequentialOrder::Create(dataset->size());
}

// Makes an order whose settings are those of its options, beside the size.
template <typename MadeOrder, typename Options>
OrderResult MakeSized(const PluginContext& context, const Options& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Dataset* const dataset, DatasetOf(context));
  Options sized = options;
  sized.size = dataset->size();
  return MadeOrder::Create(sized);
}

// ---- Orders that need a number of each sample, from a column of the dataset.

template <typename Options>
struct Weighted {
  Options options;
  std::string weights = "weight";
};

template <typename Options>
void BindOptions(Weighted<Options>& settings, OptionTable& table) {
  BindOptions(settings.options, table);
  table.Add("weights", &settings.weights,
            "The column of the dataset that has the weight of each sample.");
}

template <typename MadeOrder, typename Options>
OrderResult MakeWeighted(const PluginContext& context,
                         const Weighted<Options>& settings) {
  LOCKSTEP_ASSIGN_OR_RETURN(Dataset* const dataset, DatasetOf(context));
  Options options = settings.options;
  LOCKSTEP_ASSIGN_OR_RETURN(options.weights,
                            ReadNumbers(*dataset, settings.weights));
  if (options.num_samples == 0) options.num_samples = dataset->size();
  return MadeOrder::Create(std::move(options));
}

struct Stratified {
  StratifiedOptions options;
  std::string labels = "label";
};

void BindOptions(Stratified& settings, OptionTable& table) {
  BindSeed(settings.options.seed, table);
  table.Add("labels", &settings.labels,
            "The column of the dataset that has the class of each sample.");
}

OrderResult MakeStratified(const PluginContext& context,
                           const Stratified& settings) {
  LOCKSTEP_ASSIGN_OR_RETURN(Dataset* const dataset, DatasetOf(context));
  StratifiedOptions options = settings.options;
  LOCKSTEP_ASSIGN_OR_RETURN(options.labels,
                            ReadIntegers(*dataset, settings.labels));
  return StratifiedOrder::Create(options);
}

struct RepeatFactor {
  RepeatFactorOptions options;
  std::string factors = "factor";
};

void BindOptions(RepeatFactor& settings, OptionTable& table) {
  BindSeed(settings.options.seed, table);
  table.Add("factors", &settings.factors,
            "The column of the dataset that says how often each sample comes "
            "on average.");
}

OrderResult MakeRepeatFactor(const PluginContext& context,
                             const RepeatFactor& settings) {
  LOCKSTEP_ASSIGN_OR_RETURN(Dataset* const dataset, DatasetOf(context));
  RepeatFactorOptions options = settings.options;
  LOCKSTEP_ASSIGN_OR_RETURN(options.factors,
                            ReadNumbers(*dataset, settings.factors));
  return RepeatFactorOrder::Create(std::move(options));
}

}  // namespace

absl::Status RegisterOrders(PluginRegistry& registry) {
  absl::Status status;
  status.Update(AddOrder<NoOptions, MakeSequential>(
      registry, "sequential", "All samples in the order of their indices."));
  status.Update(AddOrder<NativeShuffleOptions, MakeSized<NativeShuffle>>(
      registry, "native_shuffle",
      "A shuffle that takes no memory, and any position in constant time."));
  status.Update(AddOrder<TorchShuffleOptions, MakeSized<TorchShuffle>>(
      registry, "torch_shuffle",
      "The shuffle of PyTorch's DistributedSampler."));
  status.Update(AddOrder<TorchRandomOptions, MakeSized<TorchRandom>>(
      registry, "torch_random", "PyTorch's RandomSampler."));
  status.Update(
      AddOrder<Weighted<TorchWeightedOptions>, MakeWeighted<TorchWeighted>>(
          registry, "torch_weighted",
          "PyTorch's WeightedRandomSampler, with replacement."));
  status.Update(
      AddOrder<Weighted<NativeWeightedOptions>, MakeWeighted<NativeWeighted>>(
          registry, "native_weighted",
          "Samples drawn by weight, with or without replacement."));
  status.Update(AddOrder<Stratified, MakeStratified>(
      registry, "stratified",
      "A shuffle in which each batch has each class in proportion."));
  status.Update(AddOrder<RepeatFactor, MakeRepeatFactor>(
      registry, "repeat_factor",
      "A shuffle in which each sample comes as often as its factor says."));
  status.Update(AddOrder<BlockShuffleOptions, MakeSized<BlockShuffle>>(
      registry, "block_shuffle",
      "A shuffle for data in chunks, few of which are open at a time."));
  return status;
}

}  // namespace internal_plugin
}  // namespace lockstep
