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
#include "lockstep/plugin/parts.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/block_shuffle.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/native_weighted.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/repeat_factor.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/stratified.h"
#include "lockstep/sampler/torch_profile.h"
#include "lockstep/sampler/torch_random.h"
#include "lockstep/sampler/torch_shuffle.h"
#include "lockstep/sampler/windowed.h"
#include "lockstep/sampler/wrapped_orders.h"

namespace lockstep::internal_plugin {
namespace {

using OrderPtr = std::shared_ptr<const Order>;
using OrderResult = absl::StatusOr<OrderPtr>;

absl::StatusOr<Dataset*> DatasetOf(const PluginContext& context) {
  if (context.dataset != nullptr) return context.dataset.get();
  return absl::FailedPreconditionError(
      "an order needs a dataset: set PluginContext::dataset first");
}

// Returns the number of ranks that get different data.
absl::StatusOr<int64_t> RanksWithData(const PluginContext& context) {
  if (context.size < 1 || context.replicas < 1 ||
      context.size % context.replicas != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "PluginContext should have one rank or more, and replicas that divide "
        "them, but got size=",
        context.size, ", replicas=", context.replicas));
  }
  return context.size / context.replicas;
}

// ---- The settings of orders.

OrderResult MakeSequential(const PluginContext& context, const NoOptions&) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Dataset* const dataset, DatasetOf(context));
  return SequentialOrder::Create(dataset->size());
}

struct SeedOptions {
  uint64_t seed = 0;
};

void AddSeed(uint64_t& seed, OptionTable& table) {
  table.Add("seed", &seed,
            "Tells one random order from another. All ranks have the same.");
}

void BindOptions(SeedOptions& options, OptionTable& table) {
  AddSeed(options.seed, table);
}

OrderResult MakeNativeShuffle(const PluginContext& context,
                              const SeedOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Dataset* const dataset, DatasetOf(context));
  return NativeShuffle::Create({dataset->size(), options.seed});
}

struct TorchOptions {
  uint64_t seed = 0;
  std::string profile = std::string(Name(kNewestTorchProfile));
};

void BindOptions(TorchOptions& options, OptionTable& table) {
  AddSeed(options.seed, table);
  table.Add("profile", &options.profile,
            "The release of PyTorch whose order this is, such as \"2.1\". It "
            "matters from 214,748,364 samples on.");
}

OrderResult MakeTorchShuffle(const PluginContext& context,
                             const TorchOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Dataset* const dataset, DatasetOf(context));
  LOCKSTEP_ASSIGN_OR_RETURN(const TorchProfile profile,
                            ParseTorchProfile(options.profile));
  return TorchShuffle::Create({dataset->size(), options.seed, profile});
}

struct RandomOptions {
  TorchOptions torch;
  int64_t num_samples = 0;
  bool replacement = false;
  TorchGeneratorUse generator = TorchGeneratorUse::kOwn;
  bool persistent_workers = false;

  RandomOptions() { torch.seed = kTorchDefaultSeed; }
};

void AddGenerator(TorchGeneratorUse& generator, bool& persistent_workers,
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

void BindOptions(RandomOptions& options, OptionTable& table) {
  BindOptions(options.torch, table);
  table.Add(
      "num_samples", &options.num_samples,
      "The number of samples that are drawn; 0: the size of the dataset.");
  table.Add("replacement", &options.replacement,
            "If true, each draw is independent of the others.");
  AddGenerator(options.generator, options.persistent_workers, table);
}

OrderResult MakeTorchRandom(const PluginContext& context,
                            const RandomOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Dataset* const dataset, DatasetOf(context));
  TorchRandomOptions random;
  LOCKSTEP_ASSIGN_OR_RETURN(random.profile,
                            ParseTorchProfile(options.torch.profile));
  random.size = dataset->size();
  random.num_samples = options.num_samples;
  random.replacement = options.replacement;
  random.seed = options.torch.seed;
  random.generator = options.generator;
  random.persistent_workers = options.persistent_workers;
  return TorchRandom::Create(random);
}

struct WeightedOptions {
  uint64_t seed = 0;
  std::string weights = "weight";
  int64_t num_samples = 0;
  bool replacement = true;
};

void AddWeights(std::string& weights, int64_t& num_samples,
                OptionTable& table) {
  table.Add("weights", &weights,
            "The column of the dataset that has the weight of each sample.");
  table.Add("num_samples", &num_samples,
            "The number of samples that are drawn in an epoch; 0: the size of "
            "the dataset.");
}

void BindOptions(WeightedOptions& options, OptionTable& table) {
  AddSeed(options.seed, table);
  AddWeights(options.weights, options.num_samples, table);
  table.Add("replacement", &options.replacement,
            "If true, a sample may come more than once in an epoch.");
}

int64_t OrAll(int64_t num_samples, const Dataset& dataset) {
  return num_samples == 0 ? dataset.size() : num_samples;
}

OrderResult MakeNativeWeighted(const PluginContext& context,
                               const WeightedOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(Dataset* const dataset, DatasetOf(context));
  NativeWeightedOptions weighted;
  LOCKSTEP_ASSIGN_OR_RETURN(weighted.weights,
                            ReadNumbers(*dataset, options.weights));
  weighted.num_samples = OrAll(options.num_samples, *dataset);
  weighted.replacement = options.replacement;
  weighted.seed = options.seed;
  return NativeWeighted::Create(std::move(weighted));
}

struct DrawnOptions {
  uint64_t seed = kTorchDefaultSeed;
  std::string weights = "weight";
  int64_t num_samples = 0;
  TorchGeneratorUse generator = TorchGeneratorUse::kOwn;
  bool persistent_workers = false;
};

void BindOptions(DrawnOptions& options, OptionTable& table) {
  AddSeed(options.seed, table);
  AddWeights(options.weights, options.num_samples, table);
  AddGenerator(options.generator, options.persistent_workers, table);
}

OrderResult MakeTorchWeighted(const PluginContext& context,
                              const DrawnOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(Dataset* const dataset, DatasetOf(context));
  TorchWeightedOptions weighted;
  LOCKSTEP_ASSIGN_OR_RETURN(weighted.weights,
                            ReadNumbers(*dataset, options.weights));
  weighted.num_samples = OrAll(options.num_samples, *dataset);
  weighted.seed = options.seed;
  weighted.generator = options.generator;
  weighted.persistent_workers = options.persistent_workers;
  return TorchWeighted::Create(weighted);
}

struct LabelOptions {
  uint64_t seed = 0;
  std::string labels = "label";
};

void BindOptions(LabelOptions& options, OptionTable& table) {
  AddSeed(options.seed, table);
  table.Add("labels", &options.labels,
            "The column of the dataset that has the class of each sample.");
}

OrderResult MakeStratified(const PluginContext& context,
                           const LabelOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(Dataset* const dataset, DatasetOf(context));
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<int64_t> labels,
                            ReadIntegers(*dataset, options.labels));
  return StratifiedOrder::Create({std::move(labels), options.seed});
}

struct FactorOptions {
  uint64_t seed = 0;
  std::string factors = "factor";
};

void BindOptions(FactorOptions& options, OptionTable& table) {
  AddSeed(options.seed, table);
  table.Add("factors", &options.factors,
            "The column of the dataset that says how often each sample comes "
            "on average.");
}

OrderResult MakeRepeatFactor(const PluginContext& context,
                             const FactorOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(Dataset* const dataset, DatasetOf(context));
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<double> factors,
                            ReadNumbers(*dataset, options.factors));
  return RepeatFactorOrder::Create({std::move(factors), options.seed});
}

struct BlockOptions {
  uint64_t seed = 0;
  int64_t chunk_size = 1;
  int64_t open_chunks = 1;
};

void BindOptions(BlockOptions& options, OptionTable& table) {
  AddSeed(options.seed, table);
  table.Add("chunk_size", &options.chunk_size,
            "The number of samples that are stored together, in a chunk.");
  table.Add("open_chunks", &options.open_chunks,
            "The number of chunks that are shuffled together.");
}

OrderResult MakeBlockShuffle(const PluginContext& context,
                             const BlockOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Dataset* const dataset, DatasetOf(context));
  return BlockShuffle::Create(
      {dataset->size(), options.chunk_size, options.open_chunks, options.seed});
}

// ---- Orders made of orders.

Config NativeShuffleTable() {
  Config table;
  table.Set("name", "native_shuffle");
  return table;
}

struct RepeatedOptions {
  Config order = NativeShuffleTable();
  RepeatOptions repeat;
};

void AddInner(Config& order, OptionTable& table) {
  table.Add("order", &order,
            "The inner order, which is rearranged: a table with its name and "
            "its settings.");
}

void BindOptions(RepeatedOptions& options, OptionTable& table) {
  AddInner(options.order, table);
  table.Add("repeats", &options.repeat.repeats,
            "The number of times that each index comes, one after the other.");
  table.Add("keep", &options.repeat.keep,
            "The number of positions that are kept; 0: all.");
}

OrderResult MakeRepeated(const PluginContext& context,
                         const RepeatedOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(OrderPtr order, context.registry->CreateFrom<Order>(
                                                options.order, context));
  return RepeatedOrder::Create(std::move(order), options.repeat);
}

struct WindowSettings {
  Config order = NativeShuffleTable();
  uint64_t seed = 0;
  int64_t global_batch = 0;
  int64_t batches = WindowOptions().batches;
};

void BindOptions(WindowSettings& options, OptionTable& table) {
  AddInner(options.order, table);
  AddSeed(options.seed, table);
  table.Add("planned_batch_size", &options.global_batch,
            "The number of rows of a global batch for which the order plans; "
            "0: that of the sampler. A job that goes on with other batches "
            "keeps this number.");
  table.Add("window_batches", &options.batches,
            "The number of such batches that are looked at together. More make "
            "better batches, and a less random order.");
}

absl::StatusOr<WindowOptions> WindowOf(const PluginContext& context,
                                       const WindowSettings& settings) {
  WindowOptions window;
  LOCKSTEP_ASSIGN_OR_RETURN(window.inner, context.registry->CreateFrom<Order>(
                                              settings.order, context));
  window.seed = settings.seed;
  window.batches = settings.batches;
  window.global_batch = settings.global_batch != 0 ? settings.global_batch
                                                   : context.global_batch_size;
  if (window.batches < 1 || window.global_batch < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "window_batches and planned_batch_size should be 1 or more, but got "
        "window_batches=",
        window.batches, ", planned_batch_size=", window.global_batch,
        "; a planned_batch_size of 0 is that of the sampler, if there is one"));
  }
  return window;
}

struct GroupSettings {
  WindowSettings window;
  std::string groups = "group";
};

void BindOptions(GroupSettings& options, OptionTable& table) {
  BindOptions(options.window, table);
  table.Add("groups", &options.groups,
            "The column of the dataset that has the group of each sample. All "
            "samples of a batch have the same group.");
}

OrderResult MakeGrouped(const PluginContext& context,
                        const GroupSettings& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(Dataset* const dataset, DatasetOf(context));
  GroupedOptions grouped;
  LOCKSTEP_ASSIGN_OR_RETURN(grouped.window, WindowOf(context, options.window));
  LOCKSTEP_ASSIGN_OR_RETURN(grouped.groups,
                            ReadIntegers(*dataset, options.groups));
  return GroupedOrder::Create(std::move(grouped));
}

struct LengthSettings {
  WindowSettings window;
  std::string lengths = "length";
};

void BindOptions(LengthSettings& options, OptionTable& table) {
  BindOptions(options.window, table);
  table.Add("lengths", &options.lengths,
            "The column of the dataset that has the length of each sample.");
}

OrderResult MakeLengthBuckets(const PluginContext& context,
                              const LengthSettings& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(Dataset* const dataset, DatasetOf(context));
  LengthBucketOptions buckets;
  LOCKSTEP_ASSIGN_OR_RETURN(buckets.window, WindowOf(context, options.window));
  LOCKSTEP_ASSIGN_OR_RETURN(buckets.lengths,
                            ReadIntegers(*dataset, options.lengths));
  return LengthBuckets::Create(std::move(buckets));
}

struct BudgetSettings {
  LengthSettings lengths;
  int64_t max_tokens = 0;
  int64_t world = 0;
};

void BindOptions(BudgetSettings& options, OptionTable& table) {
  BindOptions(options.lengths, table);
  table.Add("max_tokens", &options.max_tokens,
            "The largest product of the number of rows and the length of the "
            "longest row, on any rank.");
  table.Add("planned_ranks", &options.world,
            "The number of ranks for which the order plans; 0: the number of "
            "the job's ranks.");
}

OrderResult MakeTokenBudget(const PluginContext& context,
                            const BudgetSettings& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(Dataset* const dataset, DatasetOf(context));
  TokenBudgetOptions budget;
  LOCKSTEP_ASSIGN_OR_RETURN(budget.window,
                            WindowOf(context, options.lengths.window));
  LOCKSTEP_ASSIGN_OR_RETURN(budget.lengths,
                            ReadIntegers(*dataset, options.lengths.lengths));
  budget.max_tokens = options.max_tokens;
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t ranks, RanksWithData(context));
  budget.world = options.world != 0 ? options.world : ranks;
  return TokenBudget::Create(std::move(budget));
}

// ---- Samplers: an order, its cut, and its shard.

enum class LayoutChoice { kAuto, kStrided, kBlocked };

struct CutSettings {
  std::optional<int64_t> global_batch_size;
  std::optional<int64_t> rank_batch_size;
  bool drop_last = false;
  int64_t min_last_batch = 0;
  SmallLastBatch small_last_batch = SmallLastBatch::kDrop;
  Tail tail = Tail::kPad;
  LayoutChoice layout = LayoutChoice::kAuto;
  int64_t data_stride = 1;
};

void AddBatchSizes(CutSettings& options, OptionTable& table) {
  table.Add("global_batch_size", &options.global_batch_size,
            "The number of rows of all ranks together in a step, so that a job "
            "means the same on any number of ranks. It must be a multiple of "
            "the number of ranks.");
  table.Add("rank_batch_size", &options.rank_batch_size,
            "In place of global_batch_size: the number of rows of each rank in "
            "a step.");
}

void AddDataStride(CutSettings& options, OptionTable& table) {
  table.Add("data_stride", &options.data_stride,
            "The distance between the numbers of two ranks that get different "
            "data. Ranks that are closer together get the same data.");
}

void BindOptions(CutSettings& options, OptionTable& table) {
  AddBatchSizes(options, table);
  table.Add("tail", &options.tail,
            "The policy for a last global batch that is too short: samples are "
            "repeated and marked; left out; dealt unevenly; or missing rows "
            "are marked and empty.",
            {{"pad", Tail::kPad},
             {"drop", Tail::kDrop},
             {"uneven", Tail::kUneven},
             {"mask", Tail::kMask}});
  table.Add(
      "drop_last", &options.drop_last,
      "If true, a last batch that has fewer rows on any rank is left out.");
  table.Add("min_last_batch", &options.min_last_batch,
            "The fewest rows that a last batch may have on any rank; 0: any.");
  table.Add(
      "small_last_batch", &options.small_last_batch,
      "The policy for a last batch that has fewer rows: it is left out; it is "
      "joined to the batch before it; or the last two share their rows.",
      {{"drop", SmallLastBatch::kDrop},
       {"merge", SmallLastBatch::kMerge},
       {"spread", SmallLastBatch::kSpread}});
  table.Add("layout", &options.layout,
            "The rows of a global batch that a rank gets: every W-th row for W "
            "ranks, as in PyTorch; neighbouring rows; or the rows that the "
            "order needs.",
            {{"auto", LayoutChoice::kAuto},
             {"strided", LayoutChoice::kStrided},
             {"blocked", LayoutChoice::kBlocked}});
  AddDataStride(options, table);
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

absl::StatusOr<SamplerOptions> SamplerOptionsOf(const PluginContext& context,
                                                const CutSettings& settings) {
  SamplerOptions options;
  LOCKSTEP_ASSIGN_OR_RETURN(options.cut.world, RanksWithData(context));
  LOCKSTEP_ASSIGN_OR_RETURN(options.cut.batch_size,
                            RowsOfRank(settings, options.cut.world));
  options.cut.drop_last = settings.drop_last;
  options.cut.min_last_batch = settings.min_last_batch;
  options.cut.small_last_batch = settings.small_last_batch;
  options.cut.tail = settings.tail;
  options.rank = context.rank;
  options.replicas = context.replicas;
  options.data_stride = settings.data_stride;
  return options;
}

Layout LayoutOf(LayoutChoice choice, const Order& order) {
  const bool blocked =
      choice == LayoutChoice::kBlocked ||
      (choice == LayoutChoice::kAuto && order.NeedsBlockedLayout());
  return blocked ? Layout::kBlocked : Layout::kStrided;
}

using SamplerResult = absl::StatusOr<std::unique_ptr<Sampler>>;

// The settings of an order and those of the cut, in one table.
template <typename Options>
struct SampledOptions {
  Options order;
  CutSettings cut;
};

template <typename Options>
void BindOptions(SampledOptions<Options>& options, OptionTable& table) {
  BindOptions(options.order, table);
  BindOptions(options.cut, table);
}

template <typename Options,
          OrderResult (*kMake)(const PluginContext&, const Options&)>
SamplerResult MakeSampled(const PluginContext& context,
                          const SampledOptions<Options>& settings) {
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
struct AnyOrderOptions {
  Config order = NativeShuffleTable();
};

void BindOptions(AnyOrderOptions& options, OptionTable& table) {
  table.Add("order", &options.order,
            "The order: a table with its name and its settings.");
}

OrderResult MakeAnyOrder(const PluginContext& context,
                         const AnyOrderOptions& options) {
  return context.registry->CreateFrom<Order>(options.order, context);
}

// The settings of PyTorch's DistributedSampler in a BatchSampler, with
// PyTorch's names.
struct DistributedOptions {
  bool shuffle = true;
  TorchOptions torch;
  CutSettings cut;
  bool drop_last_batch = false;
};

void BindOptions(DistributedOptions& options, OptionTable& table) {
  table.Add("shuffle", &options.shuffle, "If true, the samples are shuffled.");
  BindOptions(options.torch, table);
  AddBatchSizes(options.cut, table);
  table.Add(
      "drop_last", &options.cut.drop_last,
      "The drop_last of DistributedSampler: if true, the last samples that do "
      "not suffice for all ranks are left out; otherwise they are padded.");
  table.Add("drop_last_batch", &options.drop_last_batch,
            "The drop_last of BatchSampler: if true, a last batch that is not "
            "full is left out.");
  AddDataStride(options.cut, table);
}

SamplerResult MakeDistributed(const PluginContext& context,
                              const DistributedOptions& settings) {
  CutSettings cut = settings.cut;
  cut.tail = settings.cut.drop_last ? Tail::kDrop : Tail::kPad;
  cut.drop_last = settings.drop_last_batch;
  LOCKSTEP_ASSIGN_OR_RETURN(const SamplerOptions options,
                            SamplerOptionsOf(context, cut));
  OrderPtr order;
  if (settings.shuffle) {
    LOCKSTEP_ASSIGN_OR_RETURN(order, MakeTorchShuffle(context, settings.torch));
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(order, MakeSequential(context, {}));
  }
  return Sampler::Create(std::move(order), options);
}

// Registers an order, and a sampler with the same name.
template <typename Options,
          OrderResult (*kMake)(const PluginContext&, const Options&)>
absl::Status AddOrder(PluginRegistry& registry, absl::string_view name,
                      absl::string_view meaning) {
  LOCKSTEP_RETURN_IF_ERROR(registry.Add<Order>(name, meaning, kMake));
  return registry.Add<Sampler>(name, meaning, MakeSampled<Options, kMake>);
}

}  // namespace

absl::Status RegisterOrders(PluginRegistry& registry) {
  absl::Status status;
  status.Update(AddOrder<NoOptions, MakeSequential>(
      registry, "sequential", "All samples in the order of their indices."));
  status.Update(AddOrder<SeedOptions, MakeNativeShuffle>(
      registry, "native_shuffle",
      "A shuffle that takes no memory, and any position in constant time."));
  status.Update(AddOrder<TorchOptions, MakeTorchShuffle>(
      registry, "torch_shuffle",
      "The shuffle of PyTorch's DistributedSampler."));
  status.Update(AddOrder<RandomOptions, MakeTorchRandom>(
      registry, "torch_random", "PyTorch's RandomSampler."));
  status.Update(AddOrder<DrawnOptions, MakeTorchWeighted>(
      registry, "torch_weighted",
      "PyTorch's WeightedRandomSampler, with replacement."));
  status.Update(AddOrder<WeightedOptions, MakeNativeWeighted>(
      registry, "native_weighted",
      "Samples drawn by weight, with or without replacement."));
  status.Update(AddOrder<LabelOptions, MakeStratified>(
      registry, "stratified",
      "A shuffle in which each batch has each class in proportion."));
  status.Update(AddOrder<FactorOptions, MakeRepeatFactor>(
      registry, "repeat_factor",
      "A shuffle in which each sample comes as often as its factor says."));
  status.Update(AddOrder<BlockOptions, MakeBlockShuffle>(
      registry, "block_shuffle",
      "A shuffle for data in chunks, few of which are open at a time."));
  status.Update(AddOrder<RepeatedOptions, MakeRepeated>(
      registry, "repeated", "Each sample several times in a row."));
  status.Update(AddOrder<GroupSettings, MakeGrouped>(
      registry, "grouped", "Batches of samples of one group."));
  status.Update(AddOrder<LengthSettings, MakeLengthBuckets>(
      registry, "length_buckets", "Batches of samples of similar length."));
  status.Update(AddOrder<BudgetSettings, MakeTokenBudget>(
      registry, "token_budget",
      "Batches of as many samples as fit into a number of tokens."));
  status.Update(registry.Add<Sampler>(
      "order", "Any order, by its name, cut into batches and dealt to ranks.",
      MakeSampled<AnyOrderOptions, MakeAnyOrder>));
  status.Update(registry.Add<Sampler>(
      "distributed", "PyTorch's DistributedSampler in a BatchSampler.",
      MakeDistributed));
  return status;
}

}  // namespace lockstep::internal_plugin
