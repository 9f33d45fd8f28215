// A Job is the description of a training job, which is read from one file: the
// settings of its ranks and their group, of its loaders, metrics and
// checkpoints, and the trainer's own settings:
//
//   [group]
//   deadline = "2m"
//
//   [loader.train]
//   num_workers = 2
//   dataset = {name = "ring", size = 2003}
//   sampler = {name = "distributed", global_batch_size = 32}
//
//   [metrics.text]
//   path = "/data/losses"
//
//   [rank_metrics.json_lines]
//   path = "/data/steps"
//
//   [trainer]
//   learning_rate = 0.1
//
// A trainer declares its own settings as a struct (option_table.h), and makes
// everything else by name:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const Config config,
//                             ConfigOfCommandLine(argc, argv));
//   TrainerOptions trainer;
//   LOCKSTEP_ASSIGN_OR_RETURN(const Job job,
//                             ReadJob(config, &trainer, {"train"}));
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto world,
//                             World::FromEnvironment(job.world));
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto group,
//                             job.MakeGroup(registry, *world));
//   LOCKSTEP_RETURN_IF_ERROR(CheckSame(*group, "the job", job.fingerprint));
//   PluginContext context;
//   context.world = world.get();
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto loader,
//                             job.MakeLoader(registry, "train", context));
//
// docs/formats.md lists all tables.
#ifndef LOCKSTEP_PLUGIN_JOB_H_
#define LOCKSTEP_PLUGIN_JOB_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"  // IWYU pragma: export
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/loader.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {

// Reads a command line. It accepts --config=FILE, and --set KEY=VALUE any
// number of times, which overrides the file (OverrideConfig). Any other
// argument is INVALID_ARGUMENT. Without a file, the configuration has only the
// values of --set.
absl::StatusOr<Config> ConfigOfCommandLine(int argc, const char* const* argv);

void BindOptions(CheckpointOptions& options, OptionTable& table);

// ProgressOptions set how often a session reports the progress of a training.
struct ProgressOptions {
  // The time between two lines within an epoch. A terminal shows a bar in place
  // of these lines. With 0, nothing is reported, not even at the end of an
  // epoch or of an evaluation.
  absl::Duration every = absl::Seconds(30);

  // The things that Step::AddWeight counts, for rates such as "12.4k
  // tokens/s".
  std::string weight = "weight";
};

void BindOptions(ProgressOptions& options, OptionTable& table);

// StopOptions set how a session stops on request.
struct StopOptions {
  // The time after Session::RequestStop, which SIGTERM and SIGINT call in Main,
  // for which that rank still waits for data, so that the step can end and be
  // saved. With 0 the rank does not wait. The patience, a step and a checkpoint
  // together should take less time than the scheduler leaves between SIGTERM
  // and SIGKILL, which is 30 s with Kubernetes, Slurm and lockstep launch.
  absl::Duration patience = absl::Seconds(20);
};

void BindOptions(StopOptions& options, OptionTable& table);

// ExactOptions set whether a session trains to the same bits on any number of
// ranks (docs/determinism.md says what a trainer must keep for that).
struct ExactOptions {
  // If true, each step is cut into shards, which are the same on any number of
  // ranks, and gradients, sums and evaluations are added up shard by shard.
  bool exact = false;

  // The number of these shards: 2^n or 3 * 2^n, and at least as many as ranks.
  // It stays the same for as long as a job has checkpoints. All samplers of the
  // job get it, so their global_batch_size is a multiple of it.
  int64_t shards = 24;

  // Returns the number of shards of each step, or 0 if it is not exact.
  int64_t CountShards() const { return exact ? shards : 0; }
};

void BindOptions(ExactOptions& options, OptionTable& table);

// Returns INVALID_ARGUMENT for a number of shards that is not accepted.
absl::Status Validate(const ExactOptions& options);

// The description of a job. It can make the job's parts by name.
// Thread-safety: thread-compatible.
struct Job {
  WorldOptions world;

  // Each Config has the settings of one part.
  Config group;
  std::map<std::string, Config> loaders;
  std::map<std::string, Config> metrics;  // of all ranks, written on rank 0
  std::map<std::string, Config> rank_metrics;  // each rank writes its own

  CheckpointOptions checkpoint;
  ProgressOptions progress;
  StopOptions stop;
  ExactOptions gradients;

  // Everything in the text that must be the same on all ranks, for CheckSame.
  // It has a field for each value, such as "loader.train.num_workers", and the
  // trainer's settings including defaults. It leaves out the tables of the
  // world, metrics, progress and stop, and the CUDA device, which may differ
  // between ranks. But it contains whether there are rank_metrics, since either
  // all ranks or none must have them.
  Fingerprint fingerprint;

  // The text from which the job was read, without its world, which may have
  // the token. Records and reports show it.
  std::string text;

  // Makes the group of all ranks from the settings in `group`. Without a name,
  // the group is "auto".
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(
      PluginRegistry& registry, World& world) const;

  // Makes a loader of `loaders`, with the job's shards if `gradients` are
  // exact. Without a name in its settings, it is a "default" loader. Returns
  // NOT_FOUND, with the list of loaders, if there is none of that name.
  absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(
      PluginRegistry& registry, absl::string_view name,
      const PluginContext& context) const;

  // Make all sinks of `metrics` or `rank_metrics`, in the order of their
  // tables. If a table's settings have no name of a sink, the table's own name
  // is used.
  absl::StatusOr<std::vector<std::unique_ptr<MetricsSink>>> MakeMetricsSinks(
      PluginRegistry& registry, const PluginContext& context) const;
  absl::StatusOr<std::vector<std::unique_ptr<MetricsSink>>>
  MakeRankMetricsSinks(PluginRegistry& registry,
                       const PluginContext& context) const;
};

// Binds the tables of a job's text, except the trainer's.
void BindOptions(Job& job, OptionTable& table);

// Reads a whole configuration. The table [trainer] is read into `trainer`,
// which is a struct with BindOptions, or its table; fields that the text does
// not set keep their values. `loaders` are the names of the loaders that the
// trainer makes. The text must have exactly these loaders, so that a mistyped
// name is an error. If `loaders` is empty, the text may have any. Returns
// INVALID_ARGUMENT, with the place of the wrong setting and the accepted
// values.
absl::StatusOr<Job> ReadJob(const Config& config, const OptionTable& trainer,
                            absl::Span<const std::string> loaders = {});
template <typename TrainerOptions>
absl::StatusOr<Job> ReadJob(const Config& config, TrainerOptions* trainer,
                            absl::Span<const std::string> loaders = {}) {
  return ReadJob(config, TableOf(*trainer), loaders);
}

// Returns everything that is wrong in a job's text, in the order of the text,
// as far as it can be seen without ranks and data: tables, settings and names
// of parts that do not exist, and values of wrong types. `trainer` is as for
// ReadJob, or null if the table [trainer] is not known. A trainer's test can
// check all of its jobs:
//
//   TrainerOptions trainer;
//   const OptionTable table = TableOf(trainer);
//   EXPECT_THAT(CheckJob(config, &table, registry), IsEmpty());
//
// `lockstep check` does more: it also opens the data.
std::vector<ConfigError> CheckJob(const Config& config,
                                  const OptionTable* trainer,
                                  PluginRegistry& registry,
                                  absl::Span<const std::string> loaders = {});

}  // namespace lockstep

#endif  // LOCKSTEP_PLUGIN_JOB_H_
