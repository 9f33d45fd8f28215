// Registers orders, and the samplers that cut and deal them.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/plugin/options.h"
#include "lockstep/plugin/parts.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/block_shuffle.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/native_weighted.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/presets.h"
#include "lockstep/sampler/repeat_factor.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/stratified.h"
#include "lockstep/sampler/torch_profile.h"
#include "lockstep/sampler/torch_random.h"
#include "lockstep/sampler/torch_shuffle.h"
#include "lockstep/sampler/windowed.h"
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

void BindSeed(uint64_t& seed, OptionTable& table) {
  table.Add("seed", &seed,
            "Tells one random order from another. All ranks have the same.");
}

void BindProfile(TorchProfile& profile, OptionTable& table) {
  table.Add("profile", &profile,
            "The release of PyTorch whose order this is, such as \"2.1\". It "
            "matters from 214,748,364 samples on.");
}

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

void BindOptions(CutOptions& cut, OptionTable& table) {
  table.Add("tail", &cut.tail,
            "The policy for a last global batch that is too short: samples are "
            "repeated and marked; left out; dealt unevenly; or missing rows "
            "are marked and empty.",
            {{"pad", Tail::kPad},
             {"drop", Tail::kDrop},
             {"uneven", Tail::kUneven},
             {"mask", Tail::kMask}});
  table.Add(
      "drop_last", &cut.drop_last,
      "If true, a last batch that has fewer rows on any rank is left out.");
  table.Add("min_last_batch", &cut.min_last_batch,
            "The fewest rows that a last batch may have on any rank; 0: any.");
  table.Add(
      "small_last_batch", &cut.small_last_batch,
      "The policy for a last batch that has fewer rows: it is left out; it is "
      "joined to the batch before it; or the last two share their rows.",
      {{"drop", SmallLastBatch::kDrop},
       {"merge", SmallLastBatch::kMerge},
       {"spread", SmallLastBatch::kSpread}});
}

namespace internal_plugin {
namespace {

using OrderResult = absl::StatusOr<OrderPtr>;
using SamplerResult = absl::StatusOr<std::unique_ptr<Sampler>>;

absl::StatusOr<Dataset*> DatasetOf(const PluginContext& context) {
  if (context.dataset != nullptr) return context.dataset.get();
  return absl::FailedPreconditionError(
      "an order needs a dataset: set PluginContext::dataset first");
}

// Returns the number of ranks that get different data.
absl::StatusOr<int64_t> RanksWithData(const PluginContext& context) {
  if (context.world_size < 1 || context.replicas < 1 ||
      context.world_size % context.replicas != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "PluginContext should have one rank or more, and replicas that divide "
        "them, but got world_size=",
        context.world_size, ", replicas=", context.replicas));
  }
  return context.world_size / context.replicas;
}

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

// ---- Orders made of orders.

// The settings of an inner order.
struct Inner {
  Inner() { table.Set("name", "native_shuffle"); }
  Config table;
};

void BindInner(Inner& inner, OptionTable& table) {
  table.Add("order", &inner.table,
            "The inner order, which is rearranged: a table with its name and "
            "its settings.");
}

OrderResult MakeInner(const PluginContext& context, const Inner& inner) {
  return context.registry->CreateFrom<Order>(inner.table, context);
}

struct Repeated {
  Inner inner;
  RepeatOptions options;
};

void BindOptions(Repeated& settings, OptionTable& table) {
  BindInner(settings.inner, table);
  BindOptions(settings.options, table);
}

OrderResult MakeRepeated(const PluginContext& context,
                         const Repeated& settings) {
  LOCKSTEP_ASSIGN_OR_RETURN(OrderPtr inner, MakeInner(context, settings.inner));
  return RepeatedOrder::Create(std::move(inner), settings.options);
}

// The settings of an order that looks at a window. By default it plans for the
// batches of the sampler.
template <typename Options>
struct Windowed {
  Windowed() { options.window.global_batch = 0; }
  Inner inner;
  Options options;
};

template <typename Options>
void BindWindow(Windowed<Options>& settings, OptionTable& table) {
  WindowOptions& window = settings.options.window;
  BindInner(settings.inner, table);
  BindSeed(window.seed, table);
  table.Add("planned_batch_size", &window.global_batch,
            "The number of rows of a global batch for which the order plans; "
            "0: that of the sampler. A job that goes on with other batches "
            "keeps this number.");
  table.Add("window_batches", &window.batches,
            "The number of such batches that are looked at together. More make "
            "better batches, and a less random order.");
}

template <typename Options>
absl::Status CompleteWindow(const PluginContext& context, const Inner& inner,
                            Options& options) {
  WindowOptions& window = options.window;
  LOCKSTEP_ASSIGN_OR_RETURN(window.inner, MakeInner(context, inner));
  if (window.global_batch == 0) window.global_batch = context.global_batch_size;
  if (window.batches >= 1 && window.global_batch >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "window_batches and planned_batch_size should be 1 or more, but got "
      "window_batches=",
      window.batches, ", planned_batch_size=", window.global_batch,
      "; a planned_batch_size of 0 is that of the sampler, if there is one"));
}

struct Grouped : Windowed<GroupedOptions> {
  std::string groups = "group";
};

void BindOptions(Grouped& settings, OptionTable& table) {
  BindWindow(settings, table);
  table.Add("groups", &settings.groups,
            "The column of the dataset that has the group of each sample. All "
            "samples of a batch have the same group.");
}

OrderResult MakeGrouped(const PluginContext& context, const Grouped& settings) {
  LOCKSTEP_ASSIGN_OR_RETURN(Dataset* const dataset, DatasetOf(context));
  GroupedOptions options = settings.options;
  LOCKSTEP_RETURN_IF_ERROR(CompleteWindow(context, settings.inner, options));
  LOCKSTEP_ASSIGN_OR_RETURN(options.groups,
                            ReadIntegers(*dataset, settings.groups));
  return GroupedOrder::Create(std::move(options));
}

template <typename Options>
struct ByLength : Windowed<Options> {
  std::string lengths = "length";
};

template <typename Options>
void BindOptions(ByLength<Options>& settings, OptionTable& table) {
  BindWindow(settings, table);
  table.Add("lengths", &settings.lengths,
            "The column of the dataset that has the length of each sample.");
}

template <typename Options>
absl::StatusOr<Options> CompleteLengths(const PluginContext& context,
                                        const ByLength<Options>& settings) {
  LOCKSTEP_ASSIGN_OR_RETURN(Dataset* const dataset, DatasetOf(context));
  Options options = settings.options;
  LOCKSTEP_RETURN_IF_ERROR(CompleteWindow(context, settings.inner, options));
  LOCKSTEP_ASSIGN_OR_RETURN(options.lengths,
                            ReadIntegers(*dataset, settings.lengths));
  return options;
}

OrderResult MakeLengthBuckets(const PluginContext& context,
                              const ByLength<LengthBucketOptions>& settings) {
  LOCKSTEP_ASSIGN_OR_RETURN(LengthBucketOptions options,
                            CompleteLengths(context, settings));
  return LengthBuckets::Create(std::move(options));
}

struct Budget : ByLength<TokenBudgetOptions> {
  Budget() { options.world = 0; }
};

void BindOptions(Budget& settings, OptionTable& table) {
  BindOptions<TokenBudgetOptions>(settings, table);
  table.Add("max_tokens", &settings.options.max_tokens,
            "The largest product of the number of rows and the length of the "
            "longest row, on any rank.");
  table.Add("planned_ranks", &settings.options.world,
            "The number of ranks for which the order plans; 0: the number of "
            "the job's ranks.");
}

OrderResult MakeTokenBudget(const PluginContext& context,
                            const Budget& settings) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      TokenBudgetOptions options,
      CompleteLengths<TokenBudgetOptions>(context, settings));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t ranks, RanksWithData(context));
  if (options.world == 0) options.world = ranks;
  return TokenBudget::Create(std::move(options));
}

// ---- Samplers: an order, its cut, and its shard.

enum class LayoutChoice { kAuto, kStrided, kBlocked };

struct CutSettings {
  SamplerOptions options;
  std::optional<int64_t> global_batch_size;
  std::optional<int64_t> rank_batch_size;
  LayoutChoice layout = LayoutChoice::kAuto;
};

void BindBatchSizes(CutSettings& settings, OptionTable& table) {
  table.Add("global_batch_size", &settings.global_batch_size,
            "The number of rows of all ranks together in a step, so that a job "
            "means the same on any number of ranks. It must be a multiple of "
            "the number of ranks.");
  table.Add("rank_batch_size", &settings.rank_batch_size,
            "In place of global_batch_size: the number of rows of each rank in "
            "a step.");
}

void BindDataStride(int64_t& data_stride, OptionTable& table) {
  table.Add("data_stride", &data_stride,
            "The distance between the numbers of two ranks that get different "
            "data. Ranks that are closer together get the same data.");
}

void BindCut(CutSettings& settings, OptionTable& table) {
  BindBatchSizes(settings, table);
  BindOptions(settings.options.cut, table);
  table.Add("layout", &settings.layout,
            "The rows of a global batch that a rank gets: every W-th row for W "
            "ranks, as in PyTorch; neighbouring rows; or the rows that the "
            "order needs.",
            {{"auto", LayoutChoice::kAuto},
             {"strided", LayoutChoice::kStrided},
             {"blocked", LayoutChoice::kBlocked}});
  BindDataStride(settings.options.data_stride, table);
}

// The maximum that CutOptions accepts.
constexpr int64_t kMostRows = int64_t{1} << 24;

// Returns the number of rows of one rank in a batch.
absl::StatusOr<int64_t> RowsOfRank(const CutSettings& settings, int64_t ranks) {
  if (settings.global_batch_size.has_value() ==
      settings.rank_batch_size.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "either global_batch_size or rank_batch_size should be set, but ",
        settings.rank_batch_size.has_value() ? "both are" : "neither is"));
  }
  if (settings.rank_batch_size.has_value()) {
    const int64_t rows = *settings.rank_batch_size;
    if (rows >= 1 && rows <= kMostRows) return rows;
    return absl::InvalidArgumentError(
        absl::StrCat("rank_batch_size should be from 1 to ", kMostRows,
                     ", but got rank_batch_size=", rows));
  }
  const int64_t all = *settings.global_batch_size;
  if (all >= 1 && all % ranks == 0 && all / ranks <= kMostRows) {
    return all / ranks;
  }
  const int64_t below =
      std::clamp<int64_t>(all / ranks, 1, kMostRows - 1) * ranks;
  return absl::InvalidArgumentError(
      absl::StrCat("global_batch_size should be a positive multiple of the "
                   "number of ranks that get "
                   "different data, ",
                   ranks, ", such as ", below, " or ", below + ranks,
                   ", but got global_batch_size=", all));
}

// Returns the options with what only the context knows.
absl::StatusOr<SamplerOptions> SamplerOptionsOf(const PluginContext& context,
                                                const CutSettings& settings) {
  SamplerOptions options = settings.options;
  LOCKSTEP_ASSIGN_OR_RETURN(options.cut.world, RanksWithData(context));
  LOCKSTEP_ASSIGN_OR_RETURN(options.cut.batch_size,
                            RowsOfRank(settings, options.cut.world));
  options.rank = context.rank;
  options.replicas = context.replicas;
  return options;
}

Layout LayoutOf(LayoutChoice choice, const Order& order) {
  const bool blocked =
      choice == LayoutChoice::kBlocked ||
      (choice == LayoutChoice::kAuto && order.NeedsBlockedLayout());
  return blocked ? Layout::kBlocked : Layout::kStrided;
}

// The settings of an order and those of the cut, in one table.
template <typename Settings>
struct Sampled {
  Settings order;
  CutSettings cut;
};

template <typename Settings>
void BindOptions(Sampled<Settings>& settings, OptionTable& table) {
  BindOptions(settings.order, table);
  BindCut(settings.cut, table);
}

template <typename Settings,
          OrderResult (*kMake)(const PluginContext&, const Settings&)>
SamplerResult MakeSampler(const PluginContext& context,
                          const Sampled<Settings>& settings) {
  LOCKSTEP_ASSIGN_OR_RETURN(SamplerOptions options,
                            SamplerOptionsOf(context, settings.cut));
  PluginContext with_batch = context;
  with_batch.global_batch_size = options.cut.batch_size * options.cut.world;
  LOCKSTEP_ASSIGN_OR_RETURN(OrderPtr order, kMake(with_batch, settings.order));
  options.cut.layout = LayoutOf(settings.cut.layout, *order);
  return Sampler::Create(std::move(order), options);
}

// The settings of a sampler with any registered order, including the host's
// own.
struct AnyOrder {
  Inner order;
};

void BindOptions(AnyOrder& settings, OptionTable& table) {
  table.Add("order", &settings.order.table,
            "The order: a table with its name and its settings.");
}

OrderResult MakeAny(const PluginContext& context, const AnyOrder& settings) {
  return MakeInner(context, settings.order);
}

// The settings of PyTorch's DistributedSampler in a BatchSampler, with
// PyTorch's names.
struct Distributed {
  DistributedSamplerOptions options;
  CutSettings cut;  // the batch sizes alone
};

void BindOptions(Distributed& settings, OptionTable& table) {
  DistributedSamplerOptions& options = settings.options;
  table.Add("shuffle", &options.shuffle, "If true, the samples are shuffled.");
  BindSeed(options.seed, table);
  BindProfile(options.profile, table);
  BindBatchSizes(settings.cut, table);
  table.Add(
      "drop_last", &options.drop_last,
      "The drop_last of DistributedSampler: if true, the last samples that do "
      "not suffice for all ranks are left out; otherwise they are padded.");
  table.Add("drop_last_batch", &options.drop_last_batch,
            "The drop_last of BatchSampler: if true, a last batch that is not "
            "full is left out.");
  BindDataStride(options.data_stride, table);
}

SamplerResult MakeDistributed(const PluginContext& context,
                              const Distributed& settings) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Dataset* const dataset, DatasetOf(context));
  LOCKSTEP_ASSIGN_OR_RETURN(const SamplerOptions cut,
                            SamplerOptionsOf(context, settings.cut));
  DistributedSamplerOptions options = settings.options;
  options.size = dataset->size();
  options.num_replicas = cut.cut.world;
  options.batch_size = cut.cut.batch_size;
  options.rank = cut.rank;
  options.same_data = cut.replicas;
  return DistributedSampler(options);
}

// Registers an order, and a sampler with the same name.
template <typename Settings,
          OrderResult (*kMake)(const PluginContext&, const Settings&)>
absl::Status AddOrder(PluginRegistry& registry, absl::string_view name,
                      absl::string_view meaning) {
  LOCKSTEP_RETURN_IF_ERROR(registry.Add<Order>(name, meaning, kMake));
  return registry.Add<Sampler>(name, meaning, MakeSampler<Settings, kMake>);
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
  status.Update(AddOrder<Repeated, MakeRepeated>(
      registry, "repeated", "Each sample several times in a row."));
  status.Update(AddOrder<Grouped, MakeGrouped>(
      registry, "grouped", "Batches of samples of one group."));
  status.Update(AddOrder<ByLength<LengthBucketOptions>, MakeLengthBuckets>(
      registry, "length_buckets", "Batches of samples of similar length."));
  status.Update(AddOrder<Budget, MakeTokenBudget>(
      registry, "token_budget",
      "Batches of as many samples as fit into a number of tokens."));
  status.Update(registry.Add<Sampler>(
      "order", "Any order, by its name, cut into batches and dealt to ranks.",
      MakeSampler<AnyOrder, MakeAny>));
  status.Update(registry.Add<Sampler>(
      "distributed", "PyTorch's DistributedSampler in a BatchSampler.",
      MakeDistributed));
  return status;
}

}  // namespace internal_plugin
}  // namespace lockstep
