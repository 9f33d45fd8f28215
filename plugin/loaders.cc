// Registers loaders.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/config.h"
#include "lockstep/base/in_part.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/collate.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/plugin/options.h"
#include "lockstep/plugin/parts.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {

void BindOptions(LoaderOptions& options, OptionTable& table) {
  table.Add("micro_batch_size", &options.micro_batch_size,
            "The most rows of a part of a step, if a step shall come in "
            "several batches, whose gradients the trainer adds up; 0: a step "
            "has one part, or one for each of the sampler's `shards`.");
  table.Add("num_workers", &options.num_workers,
            "The number of workers that read samples; 0: the thread that asks "
            "for a batch reads it; unset: half of the processors.");
  table.Add("workers", &options.workers,
            "The threads that read: oneTBB's workers; or threads of the "
            "loader's own, for samples that wait for disks or networks.",
            {{"tbb", Workers::kTbb}, {"threads", Workers::kThreads}});
  table.Add(
      "keep_tbb_limit", &options.keep_tbb_limit,
      "If true, the loader does not raise oneTBB's limit on its workers.");
  table.Add("limit_nested_threads", &options.limit_nested_threads,
            "If true, OpenMP and MKL use one thread while a sample is read.");
  table.Add("prefetch_batches", &options.prefetch_batches,
            "The number of batches, or parts of steps, that are read ahead; "
            "unset: 4, or more of small ones, up to 16 that take 2 MiB "
            "together, for each of the sampler's `shards` that a rank has.");
  table.AddSize(
      "prefetch_bytes", &options.prefetch_bytes,
      "The most memory that all these batches may take; 0: no limit.");
  table.Add("prefetch_next_epoch", &options.prefetch_next_epoch,
            "If true, workers begin to read the next epoch when they have read "
            "one to its end.");
  table.Add("advance_epochs", &options.advance_epochs,
            "If true, the epochs follow each other without an end.");
  table.Add("max_steps", &options.max_steps,
            "The number of steps, over all epochs, after which the loader "
            "ends; 0: no limit.");
  table.Add(
      "delivery", &options.delivery,
      "The order of the batches: that of the sampler, or that in which they "
      "are ready (without micro_batch_size and `shards`).",
      {{"in_order", Delivery::kInOrder}, {"as_ready", Delivery::kAsReady}});
  table.Add("seed", &options.seed,
            "The seed of the random numbers that samples and collate draw.");
  table.Add("base_seed", &options.base_seed,
            "The seed of worker 0, to which the seeds of the others add their "
            "numbers; unset: `seed`.");
  table.Add("on_error", &options.on_error,
            "The policy for samples that can't be read: their step fails, they "
            "are skipped, or other samples take their place.",
            {{"fail", OnError::kFail},
             {"skip", OnError::kSkip},
             {"substitute", OnError::kSubstitute}});
  table.Add("max_failures", &options.max_failures,
            "The number of such samples that is allowed on each rank, without "
            "`shards`; unset: any number.");
  table.Add("timeout", &options.timeout,
            "The longest time to wait for a batch, after which the wait is an "
            "error.");
  table.Add("trace_events", &options.trace_events,
            "The number of the last events that the trace has; 0: no trace.");
}

namespace internal_plugin {
namespace {

struct LoaderSettings {
  Config dataset;
  Config sampler;
  Config collate;
  LoaderOptions loader;
};

void BindOptions(LoaderSettings& settings, OptionTable& table) {
  AddPart<Dataset>(
      table, "dataset", &settings.dataset,
      "The dataset: a table with its name and its settings; empty: the "
      "dataset that the program has given.");
  AddPart<Sampler>(
      table, "sampler", &settings.sampler,
      "The sampler, which decides which samples a rank gets: a table "
      "with its name and its settings.");
  AddPart<Collate>(
      table, "collate", &settings.collate,
      "What changes each batch after its rows were read: a table with "
      "its name and its settings, or a list of such tables, which are "
      "called one after the other; empty: nothing.");
  BindOptions(settings.loader, table);
  // These are arguments of PyTorch's DataLoader.
  table.AddHint("batch_size",
                "set global_batch_size, the rows of all ranks together, or "
                "rank_batch_size in the table `sampler`");
  table.AddHint("shuffle",
                "the sampler's name says it: name = \"native_shuffle\" in the "
                "table `sampler` shuffles, and \"sequential\" does not");
  table.AddHint("drop_last", "set it in the table `sampler`");
}

// Returns a collate whose errors say which one it is.
absl::StatusOr<Collate> MakeNamedCollate(const PluginContext& context,
                                         const Config& table) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      Collate collate, context.registry->CreateFrom<Collate>(table, context));
  const std::string what =
      absl::StrCat(PluginKind<Collate>::kName, " '",
                   *table.Find("name")->As<std::string>(), "'");
  return [collate = std::move(collate), what, table](BatchView& batch,
                                                     Random& random) {
    return internal_base::InPart(
        CatchAll("it", [&] { return collate(batch, random); }), what, table);
  };
}

// Returns what calls the collates of the settings and then that of the program,
// with the same random numbers, one after the other. It is null if there are
// none.
absl::StatusOr<Collate> MakeCollate(const PluginContext& context,
                                    const Config& settings) {
  std::vector<Collate> collates;
  if (const auto* const tables = settings.As<Config::Array>()) {
    for (const Config& table : *tables) {
      LOCKSTEP_ASSIGN_OR_RETURN(Collate collate,
                                MakeNamedCollate(context, table));
      collates.push_back(std::move(collate));
    }
  } else if (!settings.IsEmptyTable()) {
    LOCKSTEP_ASSIGN_OR_RETURN(Collate collate,
                              MakeNamedCollate(context, settings));
    collates.push_back(std::move(collate));
  }
  if (collates.empty()) return context.loader_hooks.collate;
  if (context.loader_hooks.collate != nullptr) {
    collates.push_back(context.loader_hooks.collate);
  }
  return [collates = std::move(collates)](BatchView& batch, Random& random) {
    for (const Collate& collate : collates) {
      LOCKSTEP_RETURN_IF_ERROR(collate(batch, random));
    }
    return absl::OkStatus();
  };
}

absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(
    const PluginContext& context, const LoaderSettings& settings) {
  PluginContext inner = context;
  if (!settings.dataset.IsEmptyTable()) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        inner.dataset,
        context.registry->CreateFrom<Dataset>(settings.dataset, context));
  }
  if (inner.dataset == nullptr) {
    return absl::InvalidArgumentError(
        "a loader needs a dataset: set `dataset` to a table with its name, or "
        "PluginContext::dataset");
  }
  if (settings.sampler.IsEmptyTable()) {
    return absl::InvalidArgumentError(
        "a loader needs a sampler: set `sampler` to a table with its name, "
        "such as {name = \"distributed\", global_batch_size = 32}");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<Sampler> sampler,
      context.registry->CreateFrom<Sampler>(settings.sampler, inner));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<FieldSpec> fields,
      Loader::BatchFields(*inner.dataset, sampler->order()));
  inner.batch_fields = fields;
  LoaderOptions options = settings.loader;
  options.worker_init = context.loader_hooks.worker_init;
  LOCKSTEP_ASSIGN_OR_RETURN(options.collate,
                            MakeCollate(inner, settings.collate));
  options.progress = context.loader_hooks.progress;
  options.progress_interval = context.loader_hooks.progress_interval;
  options.memory = context.loader_hooks.memory;
  return Loader::Create(inner.dataset, std::move(sampler), options);
}

}  // namespace

absl::Status RegisterLoaders(PluginRegistry& registry) {
  return registry.Add<Loader>(
      "default", "Batches of a dataset, read ahead by workers.", MakeLoader);
}

}  // namespace internal_plugin
}  // namespace lockstep
