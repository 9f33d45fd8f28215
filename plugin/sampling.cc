#include "lockstep/plugin/sampling.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/plugin/options.h"
#include "lockstep/plugin/parts.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/presets.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/torch_profile.h"

namespace lockstep {

void BindOptions(CutOptions& cut, OptionTable& table) {
  table.Add("tail", &cut.tail,
            "The policy for a last global batch that is too short. pad: "
            "samples are repeated and marked, so that ranks get equally many "
            "rows; drop: samples that do not suffice for all ranks are left "
            "out; uneven: some ranks get a row less; mask: missing rows are "
            "marked and empty, so that the batch has its full size. With "
            "`shards`, this is about shards, and not about ranks.",
            {{"pad", Tail::kPad},
             {"drop", Tail::kDrop},
             {"uneven", Tail::kUneven},
             {"mask", Tail::kMask}});
  table.Add(
      "drop_last", &cut.drop_last,
      "If true, a last batch that has fewer rows on any rank, or in any of the "
      "`shards`, is left out.");
  table.Add("min_last_batch", &cut.min_last_batch,
            "The fewest rows that a last batch may have on any rank, or in any "
            "of the `shards`; 0: any.");
  table.Add(
      "small_last_batch", &cut.small_last_batch,
      "The policy for a last batch that has fewer rows: it is left out; it is "
      "joined to the batch before it; or the last two share their rows.",
      {{"drop", SmallLastBatch::kDrop},
       {"merge", SmallLastBatch::kMerge},
       {"spread", SmallLastBatch::kSpread}});
}

namespace internal_plugin {

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

void BindSeed(uint64_t& seed, OptionTable& table) {
  table.Add("seed", &seed,
            "Tells one random order from another. All ranks have the same.");
}

void BindProfile(TorchProfile& profile, OptionTable& table) {
  table.Add("profile", &profile,
            "The release of PyTorch whose order this is, such as \"2.1\". It "
            "matters from 214,748,364 samples on.");
}

void BindInner(Inner& inner, OptionTable& table) {
  AddPart<Order>(
      table, "order", &inner.table,
      "The inner order, which is rearranged: a table with its name and "
      "its settings.");
}

OrderResult MakeInner(const PluginContext& context, const Inner& inner) {
  return context.registry->CreateFrom<Order>(inner.table, context);
}

namespace {

void BindBatchSizes(CutSettings& settings, OptionTable& table) {
  table.Add("global_batch_size", &settings.global_batch_size,
            "The number of rows of all ranks together in a step, so that a job "
            "means the same on any number of ranks. It must be a multiple of "
            "the number of ranks, or of `shards` if that is set.");
  table.Add("rank_batch_size", &settings.rank_batch_size,
            "In place of global_batch_size, without `shards`: the number of "
            "rows of each rank in a step.");
  table.Add(
      "shards", &settings.options.cut.shards,
      "The number of shards into which each step is cut: 2^n or 3 * 2^n, "
      "such as 24, at most 65536, and at least as many as ranks. Shards "
      "are the same on any number of ranks, and are dealt to the ranks as "
      "evenly as possible, as parts of the step. 0: as many as ranks.");
}

void BindDataStride(int64_t& data_stride, OptionTable& table) {
  table.Add("data_stride", &data_stride,
            "The distance between the numbers of two ranks that get different "
            "data. Ranks that are closer together get the same data.");
}

}  // namespace

void BindCut(CutSettings& settings, OptionTable& table) {
  BindBatchSizes(settings, table);
  BindOptions(settings.options.cut, table);
  table.Add("layout", &settings.layout,
            "The rows of a global batch that a rank or shard gets: every W-th "
            "row for W ranks or shards, as in PyTorch; neighbouring rows; or "
            "the rows that the order needs.",
            {{"auto", LayoutChoice::kAuto},
             {"strided", LayoutChoice::kStrided},
             {"blocked", LayoutChoice::kBlocked}});
  BindDataStride(settings.options.data_stride, table);
}

namespace {

// The maximum that CutOptions accepts.
constexpr int64_t kMostRows = int64_t{1} << 24;

// Returns the first numbers of shards that divide a batch and are enough for
// the ranks, such as "1, 2 or 4", or "" if there are none.
std::string ShardsFor(int64_t batch, int64_t ranks) {
  constexpr size_t kMostShown = 8;
  std::vector<int64_t> numbers;
  for (int64_t shards = ranks;
       shards <= batch && shards <= kMostShards && numbers.size() < kMostShown;
       ++shards) {
    if (IsShardCount(shards) && batch % shards == 0) numbers.push_back(shards);
  }
  if (numbers.empty()) return "";
  const int64_t last = numbers.back();
  numbers.pop_back();
  return numbers.empty()
             ? absl::StrCat(last)
             : absl::StrCat(absl::StrJoin(numbers, ", "), " or ", last);
}

// Returns the setting that says how many shards there are: the sampler's, or,
// without one, that of the job.
const char* KeyOfShards(const CutSettings& settings) {
  return settings.options.cut.shards > 0 ? "shards" : "gradients.shards";
}

// Returns INVALID_ARGUMENT unless exactly one of the batch sizes is set, which
// is the global one if there are shards.
absl::Status CheckBatchSizes(const CutSettings& settings, int64_t shards) {
  const bool has_global = settings.global_batch_size.has_value();
  const bool has_rank = settings.rank_batch_size.has_value();
  if (shards > 0 && (has_rank || !has_global)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "with ", KeyOfShards(settings), "=", shards,
        " a step is the same on any number of ranks: set global_batch_size to "
        "a multiple of the shards",
        has_rank ? absl::StrCat(", and leave out rank_batch_size=",
                                *settings.rank_batch_size)
                 : ""));
  }
  if (has_global != has_rank) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "either global_batch_size or rank_batch_size should be set, but ",
      has_rank ? "both are" : "neither is"));
}

// Returns the number of rows of one shard in a batch.
absl::StatusOr<int64_t> RowsOfShard(const CutSettings& settings,
                                    const CutOptions& cut) {
  LOCKSTEP_RETURN_IF_ERROR(CheckBatchSizes(settings, cut.shards));
  if (settings.rank_batch_size.has_value()) {
    const int64_t rows = *settings.rank_batch_size;
    if (rows >= 1 && rows <= kMostRows) return rows;
    return absl::InvalidArgumentError(
        absl::StrCat("rank_batch_size should be from 1 to ", kMostRows,
                     ", but got rank_batch_size=", rows));
  }
  const int64_t all = *settings.global_batch_size;
  const int64_t shards = cut.CountShards();
  if (all >= 1 && all % shards == 0 && all / shards <= kMostRows) {
    return all / shards;
  }
  const int64_t below =
      std::clamp<int64_t>(all / shards, 1, kMostRows - 1) * shards;
  const std::string others = all <= kMostRows ? ShardsFor(all, cut.world) : "";
  return absl::InvalidArgumentError(absl::StrCat(
      "global_batch_size should be a positive multiple of ",
      cut.shards > 0
          ? absl::StrCat(KeyOfShards(settings), "=", shards)
          : absl::StrCat("the number of ranks that get different data, ",
                         shards),
      ", such as ", below, " or ", below + shards,
      ", but got global_batch_size=", all,
      others.empty()
          ? ""
          : absl::StrCat("; or set ",
                         cut.shards > 0 ? KeyOfShards(settings) : "shards",
                         " to a number that divides it: ", others)));
}

}  // namespace

absl::StatusOr<SamplerOptions> SamplerOptionsOf(const PluginContext& context,
                                                const CutSettings& settings) {
  SamplerOptions options = settings.options;
  LOCKSTEP_ASSIGN_OR_RETURN(options.cut.world, RanksWithData(context));
  if (context.shards > 0) {
    if (options.cut.shards != 0 && options.cut.shards != context.shards) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shards=", options.cut.shards,
          " contradicts gradients.shards=", context.shards,
          " of the job, whose gradients are exact: leave it out here"));
    }
    options.cut.shards = context.shards;
  }
  CutOptions shards;  // the other options may need the batch size
  shards.world = options.cut.world;
  shards.shards = options.cut.shards;
  LOCKSTEP_RETURN_IF_ERROR(Validate(shards));
  LOCKSTEP_ASSIGN_OR_RETURN(options.cut.batch_size,
                            RowsOfShard(settings, options.cut));
  options.rank = context.rank;
  options.replicas = context.replicas;
  return options;
}

PluginContext WithBatch(const PluginContext& context,
                        const CutSettings& settings,
                        const SamplerOptions& options) {
  PluginContext with_batch = context;
  with_batch.global_batch_size = options.cut.GlobalBatch();
  with_batch.shards = options.cut.shards;
  with_batch.global_batch_varies = !settings.global_batch_size.has_value();
  return with_batch;
}

Layout LayoutOf(LayoutChoice choice, const Order& order) {
  const bool blocked =
      choice == LayoutChoice::kBlocked ||
      (choice == LayoutChoice::kAuto && order.NeedsBlockedLayout());
  return blocked ? Layout::kBlocked : Layout::kStrided;
}

namespace {

// The settings of a sampler with any registered order, including the host's
// own.
struct AnyOrder {
  Inner order;
};

void BindOptions(AnyOrder& settings, OptionTable& table) {
  AddPart<Order>(table, "order", &settings.order.table,
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
      "not suffice for all ranks, or `shards`, are left out; otherwise they "
      "are padded.");
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
  options.shards = cut.cut.shards;
  options.batch_size = cut.cut.batch_size;
  options.rank = cut.rank;
  options.same_data = cut.replicas;
  return DistributedSampler(options);
}

}  // namespace

absl::Status RegisterSamplers(PluginRegistry& registry) {
  absl::Status status;
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
