// Registers loaders.
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/plugin/options.h"
#include "lockstep/plugin/parts.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {

void BindOptions(LoaderOptions& options, OptionTable& table) {
  table.Add("num_workers", &options.num_workers,
            "How many samples are read at a time; 0: on the thread that asks "
            "for a batch; unset: half of the processors.");
  table.Add("workers", &options.workers,
            "The threads that read: oneTBB's workers, or threads of the "
            "loader's own, for "
            "samples that wait for disks or networks.",
            {{"tbb", Workers::kTbb}, {"threads", Workers::kThreads}});
  table.Add("keep_tbb_limit", &options.keep_tbb_limit,
            "Whether oneTBB's limit on its workers stays as it is.");
  table.Add("limit_nested_threads", &options.limit_nested_threads,
            "Holds OpenMP and MKL to one thread while a sample is read.");
  table.Add("prefetch_batches", &options.prefetch_batches,
            "Batches that are read ahead.");
  table.AddSize("prefetch_bytes", &options.prefetch_bytes,
                "The most memory that all these batches take; 0: no limit.");
  table.Add("prefetch_next_epoch", &options.prefetch_next_epoch,
            "Whether the next epoch is begun when one is read to its end.");
  table.Add("advance_epochs", &options.advance_epochs,
            "Whether the epochs follow each other without an end.");
  table.Add(
      "max_steps", &options.max_steps,
      "The steps after which the loader ends, over all epochs; 0: never.");
  table.Add(
      "delivery", &options.delivery,
      "Whether batches come in order, or as they are ready.",
      {{"in_order", Delivery::kInOrder}, {"as_ready", Delivery::kAsReady}});
  table.Add("seed", &options.seed,
            "The seed of the random numbers that samples and collate draw.");
  table.Add(
      "base_seed", &options.base_seed,
      "The number from which the seeds of workers count; unset: the seed.");
  table.Add("on_error", &options.on_error,
            "The fate of samples that can't be read: their step fails, "
            "they are skipped, or others take their place.",
            {{"stop", OnError::kStop},
             {"skip", OnError::kSkip},
             {"substitute", OnError::kSubstitute}});
  table.Add("max_failures", &options.max_failures,
            "How many such samples there may be; unset: any number.");
  table.Add("timeout", &options.timeout,
            "How long a batch is waited for before that is an error.");
  table.Add("trace_events", &options.trace_events,
            "How many events of a trace are kept; 0: no trace.");
}

namespace internal_plugin {
namespace {

struct LoaderSettings {
  Config dataset;
  Config sampler;
  LoaderOptions loader;
};

void BindOptions(LoaderSettings& settings, OptionTable& table) {
  table.Add("dataset", &settings.dataset,
            "The dataset, a table with its name; empty: the one that the "
            "program has given.");
  table.Add("sampler", &settings.sampler,
            "The sampler that says which samples a rank gets, a table with its "
            "name.");
  BindOptions(settings.loader, table);
}

bool IsEmpty(const Config& config) {
  const auto* const table = config.As<Config::Table>();
  return table != nullptr && table->empty();
}

absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(
    const PluginContext& context, const LoaderSettings& settings) {
  PluginContext inner = context;
  if (!IsEmpty(settings.dataset)) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        inner.dataset,
        context.registry->CreateFrom<Dataset>(settings.dataset, context));
  }
  if (inner.dataset == nullptr) {
    return absl::InvalidArgumentError(
        "a loader needs a dataset: set `dataset` to a table with its name, or "
        "PluginContext::dataset");
  }
  if (IsEmpty(settings.sampler)) {
    return absl::InvalidArgumentError(
        "a loader needs a sampler: set `sampler` to a table with its name, "
        "such as {name = \"distributed\", global_batch_size = 32}");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<Sampler> sampler,
      context.registry->CreateFrom<Sampler>(settings.sampler, inner));
  LoaderOptions options = settings.loader;
  if (context.loader != nullptr) {
    options.worker_init = context.loader->worker_init;
    options.collate = context.loader->collate;
    options.memory = context.loader->memory;
    options.progress = context.loader->progress;
    options.progress_interval = context.loader->progress_interval;
  }
  return Loader::Create(inner.dataset, std::move(sampler), options);
}

}  // namespace

absl::Status RegisterLoaders(PluginRegistry& registry) {
  return registry.Add<Loader>(
      "default", "Batches of a dataset, read ahead by workers.", MakeLoader);
}

}  // namespace internal_plugin
}  // namespace lockstep
