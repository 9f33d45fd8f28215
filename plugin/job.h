// A job as text: its ranks and their group, loaders by name, where metrics and
// checkpoints go, and the trainer's own settings, in one file:
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
// the rest by name:
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
// docs/formats.md has all tables.
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
#include "lockstep/plugin/metrics_sink.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {

// Reads a command line: --config=FILE, and --set KEY=VALUE as often as needed,
// which counts more (OverrideConfig). Anything else is INVALID_ARGUMENT.
// Without a file, the configuration is empty but for what is set.
absl::StatusOr<Config> ConfigOfCommandLine(int argc, const char* const* argv);

void BindOptions(CheckpointOptions& options, OptionTable& table);

// ProgressOptions say how often a session tells of a training's progress.
struct ProgressOptions {
  // The time from one line to the next within an epoch; on a terminal, a bar is
  // there in place of them. 0: nothing is told, also not at the end of an epoch
  // or of an evaluation.
  absl::Duration every = absl::Seconds(30);
};

void BindOptions(ProgressOptions& options, OptionTable& table);

struct Job {
  WorldOptions world;

  // Settings of parts, each a table.
  Config group;
  std::map<std::string, Config> loaders;
  std::map<std::string, Config> metrics;       // on rank 0, of all ranks
  std::map<std::string, Config> rank_metrics;  // on each rank, of that one

  CheckpointOptions checkpoint;
  ProgressOptions progress;

  // All of the text that should be the same on all ranks, for CheckSame: a
  // field for each value, such as "loader.train.num_workers". The world, the
  // CUDA device, and the tables for metrics and progress are a rank's own
  // affair, and are not in it; but either all ranks have rank_metrics or none
  // has. The trainer's settings are in it with their defaults.
  Fingerprint fingerprint;

  // Makes the group of all ranks that `group` describes: "auto" where it has no
  // name.
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(
      PluginRegistry& registry, World& world) const;

  // Makes a loader of `loaders`: "default" where it has no name. NOT_FOUND
  // lists those that there are.
  absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(
      PluginRegistry& registry, absl::string_view name,
      const PluginContext& context) const;

  // Makes all of `metrics`, or of `rank_metrics`, in the order of their tables.
  // One without a name is called as its table is.
  absl::StatusOr<std::vector<std::unique_ptr<MetricsSink>>> MakeMetricsSinks(
      PluginRegistry& registry, const PluginContext& context) const;
  absl::StatusOr<std::vector<std::unique_ptr<MetricsSink>>>
  MakeRankMetricsSinks(PluginRegistry& registry,
                       const PluginContext& context) const;
};

// The tables of a job's text, but for the trainer's.
void BindOptions(Job& job, OptionTable& table);

namespace internal_plugin {
absl::StatusOr<Job> ReadJob(const Config& config, const OptionTable& trainer,
                            absl::Span<const std::string> loaders);
}  // namespace internal_plugin

// Reads a whole configuration. The table [trainer] goes to `trainer`, whose
// struct has BindOptions; what it does not set stays as it is. `loaders` are
// those that the trainer makes: the text should have these and no others, so
// that a name that is mistyped is told at once. If there are none, the text may
// have any. INVALID_ARGUMENT says where a setting stands, and what is accepted.
template <typename TrainerOptions>
absl::StatusOr<Job> ReadJob(const Config& config, TrainerOptions* trainer,
                            absl::Span<const std::string> loaders = {}) {
  return internal_plugin::ReadJob(config, TableOf(*trainer), loaders);
}

}  // namespace lockstep

#endif  // LOCKSTEP_PLUGIN_JOB_H_
