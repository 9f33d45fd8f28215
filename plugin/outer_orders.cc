// Registers orders that are made of other orders.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/plugin/options.h"
#include "lockstep/plugin/parts.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/plugin/sampling.h"
#include "lockstep/sampler/continued_mixture.h"
#include "lockstep/sampler/mixture.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/packed.h"
#include "lockstep/sampler/windowed.h"
#include "lockstep/sampler/wrapped_orders.h"

namespace lockstep::internal_plugin {
namespace {

// Returns the settings of an order that is part of another one. If it takes a
// seed and has none, it gets `seed`.
Config WithSeed(const PluginContext& context, const Config& order,
                uint64_t seed) {
  const Config* const name = order.Find("name");
  const auto* const text = name == nullptr ? nullptr : name->As<std::string>();
  if (text == nullptr || order.Find("seed") != nullptr) return order;
  for (const PluginPart& part : context.registry->Parts<Order>()) {
    if (part.name != *text) continue;
    for (const OptionInfo& option : part.options) {
      if (option.key != "seed") continue;
      Config with_seed = order;
      with_seed.Set("seed", seed);
      return with_seed;
    }
  }
  return order;
}

// Returns the context of an order that is part of another one, whose steps have
// numbers of samples that the inner order can't know.
PluginContext ForInner(const PluginContext& context) {
  PluginContext inner = context;
  inner.global_batch_varies = true;
  return inner;
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
  LOCKSTEP_ASSIGN_OR_RETURN(OrderPtr inner,
                            MakeInner(ForInner(context), settings.inner));
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
  table.Add("seed", &window.seed,
            "Tells one random order from another. All ranks have the same. It "
            "is also the seed of the inner order, unless that has one.");
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
  Inner with_seed;
  with_seed.table = WithSeed(context, inner.table, window.seed);
  LOCKSTEP_ASSIGN_OR_RETURN(window.inner,
                            MakeInner(ForInner(context), with_seed));
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
            "longest row, on any rank, or in any of the sampler's `shards`.");
  table.Add("planned_ranks", &settings.options.world,
            "The number of ranks for which the order plans; 0: the number of "
            "the job's ranks, or of the sampler's `shards`.");
}

OrderResult MakeTokenBudget(const PluginContext& context,
                            const Budget& settings) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      TokenBudgetOptions options,
      CompleteLengths<TokenBudgetOptions>(context, settings));
  LOCKSTEP_RETURN_IF_ERROR(RanksWithData(context).status());
  const int64_t planned = context.CountShards();
  if (context.shards > 0 && options.world != 0 && options.world != planned) {
    return absl::InvalidArgumentError(absl::StrCat(
        "planned_ranks=", options.world, " contradicts shards=", planned,
        ", which are what the order plans for: leave planned_ranks out"));
  }
  if (options.world == 0) options.world = planned;
  return TokenBudget::Create(std::move(options));
}

struct Packed : ByLength<PackedOptions> {};

void BindOptions(Packed& settings, OptionTable& table) {
  BindOptions<PackedOptions>(settings, table);
  table.Add("row_length", &settings.options.row_length,
            "The number of elements of a row, which must be set.");
  table.Add("cut", &settings.options.cut,
            "If true, samples that are longer than a row lose their ends; "
            "otherwise they are an error.");
}

OrderResult MakePacked(const PluginContext& context, const Packed& settings) {
  LOCKSTEP_ASSIGN_OR_RETURN(PackedOptions options,
                            CompleteLengths<PackedOptions>(context, settings));
  return PackedOrder::Create(std::move(options));
}

// ---- Mixtures.

// The weights of a mixture from some sample on.
struct ScheduledWeights {
  std::optional<int64_t> after_samples;
  std::optional<int64_t> after_steps;
  std::vector<double> weights;
};

void BindOptions(ScheduledWeights& settings, OptionTable& table) {
  table.Add("after_samples", &settings.after_samples,
            "The number of samples of all ranks, over all epochs, after which "
            "these weights hold.");
  table.Add("after_steps", &settings.after_steps,
            "The same as a number of steps.");
  table.Add("weights", &settings.weights, "The weights of the parts.");
}

struct Mixture {
  std::vector<Config> of;
  std::vector<double> weights;
  std::vector<ScheduledWeights> schedule;
  MixtureStop end = MixtureStop::kFirstExhausted;
  int64_t num_samples = 0;
  uint64_t seed = 0;
};

void BindOptions(Mixture& settings, OptionTable& table) {
  table.Add("weights", &settings.weights,
            "The weight of each part of the dataset, such as [0.7, 0.3]; 0 "
            "leaves a part out. The dataset has several parts, as `concat` "
            "has.");
  AddPart<Order>(
      table, "of", &settings.of,
      "The order of each part, a list of tables; empty: each part has "
      "`native_shuffle`. An order that takes a seed and has none gets "
      "that of the mixture plus the number of the part, from 0.");
  table.Add("end", &settings.end,
            "The end of an epoch: when the first part has come once; when each "
            "part has had as many turns as it has samples; or after "
            "num_samples.",
            {{"first_exhausted", MixtureStop::kFirstExhausted},
             {"all_exhausted", MixtureStop::kAllExhausted},
             {"samples", MixtureStop::kNumSamples}});
  table.Add("num_samples", &settings.num_samples,
            "The number of samples of an epoch, if it ends by samples.");
  table.AddTables(
      "schedule", &settings.schedule,
      "The weights that hold later, a list of tables that have `weights` "
      "and either `after_samples` or `after_steps`. It needs an epoch "
      "that ends by samples.");
  BindSeed(settings.seed, table);
}

// Reads each column of a dataset once.
// Thread-safety: thread-compatible.
class Columns {
 public:
  explicit Columns(std::shared_ptr<Dataset> dataset)
      : dataset_(std::move(dataset)) {}

  absl::StatusOr<const Dataset::Column*> Read(absl::string_view name) {
    const std::string key(name);
    const auto found = columns_.find(key);
    if (found != columns_.end()) return &found->second;
    LOCKSTEP_ASSIGN_OR_RETURN(Dataset::Column column,
                              ReadWholeColumn(*dataset_, name));
    return &(columns_[key] = std::move(column));
  }

 private:
  const std::shared_ptr<Dataset> dataset_;
  std::map<std::string, Dataset::Column> columns_;
};

// A part of a dataset, for the making of the order that walks it.
// Thread-safety: thread-compatible.
class PartView : public Dataset {
 public:
  PartView(std::shared_ptr<Dataset> whole, std::shared_ptr<Columns> columns,
           int64_t begin, int64_t size)
      : whole_(std::move(whole)),
        columns_(std::move(columns)),
        begin_(begin),
        size_(size) {}

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override {
    return whole_->fields();
  }
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override {
    return whole_->Read(begin_ + index, context, row);
  }
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const Column* const column, columns_->Read(name));
    return std::visit(
        [this](const auto& values) {
          const auto first = values.begin() + begin_;
          return Column(std::decay_t<decltype(values)>(first, first + size_));
        },
        *column);
  }

 private:
  const std::shared_ptr<Dataset> whole_;
  const std::shared_ptr<Columns> columns_;
  const int64_t begin_;
  const int64_t size_;
};

// Returns the sample from which on the weights hold.
absl::StatusOr<int64_t> FirstSample(const PluginContext& context,
                                    const Mixture& mixture,
                                    const ScheduledWeights& weights) {
  if (weights.after_samples.has_value() == weights.after_steps.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "each table of `schedule` should have either after_samples or "
        "after_steps, but one has ",
        weights.after_steps.has_value() ? "both" : "neither"));
  }
  if (weights.after_samples.has_value()) return *weights.after_samples;
  const int64_t batch = context.global_batch_size;
  if (batch < 1 || context.global_batch_varies) {
    return absl::InvalidArgumentError(
        "after_steps needs steps that all have the same samples on any number "
        "of ranks: `mixture` as the sampler itself, and its global_batch_size. "
        "Inside another order, or with rank_batch_size, set after_samples");
  }
  if (mixture.num_samples % batch != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "after_steps needs full batches: num_samples should be a multiple of "
        "global_batch_size=",
        batch, ", such as ", (mixture.num_samples / batch + 1) * batch,
        ", but got num_samples=", mixture.num_samples));
  }
  int64_t samples = 0;
  if (__builtin_mul_overflow(*weights.after_steps, batch, &samples)) {
    return absl::InvalidArgumentError(
        absl::StrCat("after_steps=", *weights.after_steps, " of ", batch,
                     " samples are more than 2^63"));
  }
  return samples;
}

absl::Status CheckParts(const std::vector<int64_t>& parts, int64_t size) {
  int64_t left = size;
  for (const int64_t part : parts) {
    if (part < 0 || part > left) break;
    left -= part;
  }
  const bool negative = std::any_of(parts.begin(), parts.end(),
                                    [](int64_t part) { return part < 0; });
  if (left == 0 && !negative) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "Dataset::parts() should add up to the size of the dataset, ", size,
      ", but returned ", absl::StrJoin(parts, ", ")));
}

// Checks the settings of which some need, and some exclude, others.
absl::Status CheckEnd(const Mixture& settings) {
  const bool by_samples = settings.end == MixtureStop::kNumSamples;
  if (by_samples && settings.num_samples < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("with end = \"samples\", num_samples should be set to the "
                     "samples of an "
                     "epoch, 1 or more, but got num_samples=",
                     settings.num_samples));
  }
  if (!by_samples &&
      (settings.num_samples != 0 || !settings.schedule.empty())) {
    return absl::InvalidArgumentError(absl::StrCat(
        settings.schedule.empty() ? "num_samples has no effect"
                                  : "a schedule can't be kept",
        " unless the epochs end by samples: set end = \"samples\" and "
        "num_samples, but got num_samples=",
        settings.num_samples, " and another end"));
  }
  return absl::OkStatus();
}

OrderResult MakeMixture(const PluginContext& context, const Mixture& settings) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Dataset* const dataset, DatasetOf(context));
  const std::vector<int64_t> parts = dataset->parts();
  if (settings.weights.size() != parts.size() ||
      (!settings.of.empty() && settings.of.size() != parts.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a mixture should have a weight for each part of its dataset, and an "
        "order, too, if `of` is set. The dataset has ",
        parts.size(),
        parts.size() == 1 ? " part (`concat` has several)" : " parts",
        ", but got weights = [", absl::StrJoin(settings.weights, ", "), "]",
        settings.of.empty()
            ? ""
            : absl::StrCat(" and ", settings.of.size(), " orders")));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckParts(parts, dataset->size()));
  LOCKSTEP_RETURN_IF_ERROR(CheckEnd(settings));
  const auto columns = std::make_shared<Columns>(context.dataset);
  ContinuedMixtureOptions options;
  options.end = settings.end;
  options.num_samples = settings.num_samples;
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    Config order;
    order.Set("name", "native_shuffle");
    if (!settings.of.empty()) order = settings.of[i];
    PluginContext part = ForInner(context);
    part.dataset =
        std::make_shared<PartView>(context.dataset, columns, begin, parts[i]);
    begin += parts[i];
    LOCKSTEP_ASSIGN_OR_RETURN(
        OrderPtr source,
        context.registry->CreateFrom<Order>(
            WithSeed(context, order, settings.seed + i), part));
    if (source->Describe().size != parts[i]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the order of part ", i, ", ", source->Describe().ToString(),
          ", is over ", source->Describe().size, " samples, and the part has ",
          parts[i]));
    }
    options.sources.push_back(std::move(source));
  }
  options.phases.push_back({0, settings.weights});
  for (const ScheduledWeights& weights : settings.schedule) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t first,
                              FirstSample(context, settings, weights));
    const int64_t last = options.phases.back().first_sample;
    if (first <= last) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the tables of `schedule` should come in the order of their samples, "
          "the first of them after sample 0, but table ",
          options.phases.size() - 1, " (counted from 0) begins with sample ",
          first, ", and the weights before it with sample ", last));
    }
    options.phases.push_back({first, weights.weights});
  }
  return ContinuedMixture::Create(std::move(options));
}

}  // namespace

absl::Status RegisterOuterOrders(PluginRegistry& registry) {
  absl::Status status;
  status.Update(AddOrder<Repeated, MakeRepeated>(
      registry, "repeated", "Each sample several times in a row."));
  status.Update(AddOrder<Grouped, MakeGrouped>(
      registry, "grouped", "Batches of samples of one group."));
  status.Update(AddOrder<ByLength<LengthBucketOptions>, MakeLengthBuckets>(
      registry, "length_buckets", "Batches of samples of similar length."));
  status.Update(AddOrder<Budget, MakeTokenBudget>(
      registry, "token_budget",
      "Batches of as many samples as fit into a number of tokens."));
  status.Update(AddOrder<Packed, MakePacked>(
      registry, "packed",
      "Rows of a fixed length, into which several samples are packed."));
  status.Update(AddOrder<Mixture, MakeMixture>(
      registry, "mixture", "The parts of a dataset in proportion to weights."));
  return status;
}

}  // namespace lockstep::internal_plugin
