#include "lockstep/plugin/job.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/shard_tree.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/loader.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/plugin/options.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {
namespace {

constexpr char kTrainer[] = "trainer";

Fingerprint FingerprintOf(Config job, const Config& trainer) {
  const Config* const sinks = job.Find("rank_metrics");
  const bool is_set = sinks != nullptr && !sinks->IsEmptyTable();
  job.Set(kTrainer, trainer);
  // These tables do not change the result of the training.
  constexpr const char* kApart[] = {"world", "metrics", "rank_metrics",
                                    "progress", "stop"};
  for (const char* const key : kApart) job.Set(key, Config());
  std::map<std::string, std::string> values = job.Values();
  for (const char* const key : kApart) values.erase(key);
  values.erase("group.device");
  values.erase("checkpoint.path");
  Fingerprint fingerprint;
  for (const auto& [key, value] : values) fingerprint.Add(key, value);
  // If each rank reports, all ranks compare their clocks, which is a
  // collective.
  if (is_set) fingerprint.Add("rank_metrics", "yes");
  return fingerprint;
}

using Errors = std::vector<ConfigError>;

void Append(Errors more, Errors& errors) {
  std::move(more.begin(), more.end(), std::back_inserter(errors));
}

// Adds an error if `time` is negative.
void CheckTime(const Config& table, absl::string_view key, absl::Duration time,
               absl::string_view least, Errors& errors) {
  if (time >= absl::ZeroDuration()) return;
  const Config* found = &table;
  for (const absl::string_view word : absl::StrSplit(key, '.')) {
    if (found != nullptr) found = found->Find(word);
  }
  errors.push_back(
      {found == nullptr ? table.location() : found->location(),
       absl::StrCat(key, " is ", absl::FormatDuration(time), "; accepted are ",
                    least, ", and longer times")});
}

// Adds an error if an option of a table is wrong, at the place of the key that
// the error names or, without one, at that of the table.
void CheckOptions(const Config& job, absl::string_view name,
                  const absl::Status& status,
                  std::initializer_list<absl::string_view> keys,
                  Errors& errors) {
  if (status.ok()) return;
  const Config* const table = job.Find(name);
  const Config* at = table;
  for (const absl::string_view key : keys) {
    const Config* const value = table == nullptr ? nullptr : table->Find(key);
    if (value != nullptr && absl::StrContains(status.message(), key)) {
      at = value;
    }
  }
  errors.push_back({at == nullptr ? "" : at->location(),
                    absl::StrCat(name, ": ", status.message()), status.code()});
}

void CheckTable(absl::string_view name, const Config& config, Errors& errors) {
  if (config.As<Config::Table>() != nullptr) return;
  errors.push_back(
      {config.location(),
       absl::StrCat(name, " should be a table of settings, but is ",
                    config.Shown(),
                    config.As<Config::Array>() != nullptr
                        ? "; a table has single brackets"
                        : "")});
}

void CheckTables(absl::string_view kind,
                 const std::map<std::string, Config>& parts, Errors& errors) {
  for (const auto& [name, config] : parts) {
    CheckTable(absl::StrCat(kind, ".", name), config, errors);
  }
}

// Checks that the text has exactly the loaders that the trainer makes.
void CheckLoaders(const Config& job,
                  const std::map<std::string, Config>& loaders,
                  absl::Span<const std::string> made, Errors& errors) {
  if (made.empty()) return;
  for (const auto& [name, config] : loaders) {
    if (std::find(made.begin(), made.end(), name) != made.end()) continue;
    errors.push_back(
        {config.location(),
         absl::StrCat("the trainer has no loader ", SayUnknown(name, made))});
  }
  for (const std::string& name : made) {
    if (loaders.count(name) > 0) continue;
    errors.push_back({job.location(),
                      absl::StrCat("the trainer needs a table [loader.", name,
                                   "], and the job has none",
                                   job.IsEmptyTable()
                                       ? "; --config=FILE names the job's text"
                                       : "")});
  }
}

// Reads all tables but the trainer's into `job`. Returns everything that is
// wrong with their settings, but does not look into tables of parts.
Errors ReadTables(const Config& config, absl::Span<const std::string> made,
                  Job& job, Config& trainers) {
  OptionTable table = TableOf(job);
  table.Add(kTrainer, &trainers, "The trainer's own settings.");
  Errors errors = table.ReadAll("the job", config);
  CheckTable("group", job.group, errors);
  CheckTables("loader", job.loaders, errors);
  CheckLoaders(config, job.loaders, made, errors);
  CheckTables("metrics", job.metrics, errors);
  CheckTables("rank_metrics", job.rank_metrics, errors);
  CheckTime(config, "progress.every", job.progress.every, "0s, for none",
            errors);
  CheckTime(config, "stop.patience", job.stop.patience, "0s", errors);
  CheckOptions(config, "gradients", Validate(job.gradients), {"shards"},
               errors);
  return errors;
}

absl::StatusOr<std::string> TakeArgument(absl::string_view flag,
                                         absl::string_view word, int argc,
                                         const char* const* argv, int& at) {
  if (absl::ConsumePrefix(&word, "=")) return std::string(word);
  if (++at < argc) return std::string(argv[at]);
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " needs a value behind it"));
}

absl::StatusOr<std::vector<std::unique_ptr<MetricsSink>>> MakeSinks(
    const std::map<std::string, Config>& tables, PluginRegistry& registry,
    const PluginContext& context) {
  std::vector<std::unique_ptr<MetricsSink>> sinks;
  for (const auto& [name, table] : tables) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        auto sink, registry.CreateFrom<MetricsSink>(table, context, name));
    sinks.push_back(std::move(sink));
  }
  return sinks;
}

}  // namespace

absl::StatusOr<Config> ConfigOfCommandLine(int argc, const char* const* argv) {
  Config config;
  std::vector<std::string> overrides;
  std::optional<std::string> file;
  for (int at = 1; at < argc; ++at) {
    absl::string_view word = argv[at];
    const std::string given(word);
    if (absl::ConsumePrefix(&word, "--config") &&
        (word.empty() || word[0] == '=')) {
      if (file.has_value()) {
        return absl::InvalidArgumentError(
            "--config may be given once; --set changes single values");
      }
      LOCKSTEP_ASSIGN_OR_RETURN(file,
                                TakeArgument("--config", word, argc, argv, at));
      if (file->empty()) {
        return absl::InvalidArgumentError(
            "--config should name a file, but its value is empty");
      }
    } else if (absl::ConsumePrefix(&word, "--set") &&
               (word.empty() || word[0] == '=')) {
      LOCKSTEP_ASSIGN_OR_RETURN(std::string assignment,
                                TakeArgument("--set", word, argc, argv, at));
      overrides.push_back(std::move(assignment));
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no argument '", absl::CHexEscape(given),
          "'; --config=FILE names the configuration, and --set KEY=VALUE "
          "changes a value of it, such as --set loader.train.num_workers=4"));
    }
  }
  if (file.has_value()) {
    LOCKSTEP_ASSIGN_OR_RETURN(config, ReadConfigFile(*file));
  }
  for (const std::string& assignment : overrides) {
    LOCKSTEP_RETURN_IF_ERROR(OverrideConfig(assignment, config));
  }
  return config;
}

void BindOptions(CheckpointOptions& options, OptionTable& table) {
  table.Add("path", &options.path,
            "The folder and the beginning of the files' names; empty: the job "
            "has no checkpoints.");
  table.Add("every_steps", &options.every_steps,
            "The number of steps from one checkpoint to the next, beside those "
            "at the end of each epoch; 0: there are only those.");
  table.Add("keep", &options.keep, "The number of checkpoints that are kept.");
  table.Add("background", &options.background,
            "If true, steps go on while a checkpoint is written, from a copy.");
}

void BindOptions(ProgressOptions& options, OptionTable& table) {
  table.Add(
      "every", &options.every,
      "The time from one line to the next within an epoch; a terminal has a "
      "bar in place of these lines. 0s: there is no report of progress.");
  table.Add("weight", &options.weight,
            "What the weight of a step counts, for rates such as \"12.4k "
            "tokens/s\": for instance \"tokens\".");
}

void BindOptions(StopOptions& options, OptionTable& table) {
  table.Add("patience", &options.patience,
            "The time after SIGTERM or SIGINT for which a rank that got the "
            "signal still waits for data, so that its step can end and be "
            "saved.");
}

void BindOptions(ExactOptions& options, OptionTable& table) {
  table.Add("exact", &options.exact,
            "If true, the training has the same bits on any number of ranks: "
            "each step is cut into shards, and gradients, sums and "
            "evaluations are added up shard by shard.");
  table.Add("shards", &options.shards,
            "With exact, the number of shards of each step, for all samplers "
            "of the job: 2^n or 3 * 2^n, and at least as many as ranks. Each "
            "global_batch_size is a multiple of it.");
}

absl::Status Validate(const ExactOptions& options) {
  if (IsShardCount(options.shards)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "shards should be 2^n or 3 * 2^n, such as 16 or 24, and at most ",
      kMostShards, ", but is ", options.shards));
}

void BindOptions(Job& job, OptionTable& table) {
  table.AddTable("world", &job.world,
                 "The settings by which the ranks find each other.");
  table.Add("group", &job.group,
            "The communicator of all ranks: its name, \"auto\" if there is "
            "none, and its settings.");
  table.Add("loader", &job.loaders,
            "The loaders, each under a name of the trainer's: a table with the "
            "loader's settings, and tables for its dataset and sampler.");
  table.Add("metrics", &job.metrics,
            "The sinks to which rank 0 writes the metrics of all ranks. The "
            "key is the sink's name, or the table has its name. The table has "
            "the sink's settings.");
  table.Add("rank_metrics", &job.rank_metrics,
            "The sinks to which each rank writes its own metrics, as under "
            "[metrics].");
  table.AddTable(
      "checkpoint", &job.checkpoint,
      "The job's checkpoints, from which it goes on after a restart.");
  table.AddTable("progress", &job.progress,
                 "The session's reports of the training's progress.");
  table.AddTable("stop", &job.stop, "How the session stops on request.");
  table.AddTable(
      "gradients", &job.gradients,
      "Whether the training has the same bits on any number of ranks.");
}

absl::StatusOr<Job> ReadJob(const Config& config, const OptionTable& trainer,
                            absl::Span<const std::string> made) {
  Job job;
  Config trainers;
  const Errors errors = ReadTables(config, made, job, trainers);
  if (!errors.empty()) return errors[0].ToStatus();
  LOCKSTEP_RETURN_IF_ERROR(trainer.Read(kTrainer, trainers));
  job.fingerprint = FingerprintOf(config, trainer.Write());
  Config shown;
  for (const Config::Entry& entry : *config.As<Config::Table>()) {
    if (entry.key != "world") shown.Set(entry.key, entry.value);
  }
  job.text = shown.ToText();
  return job;
}

std::vector<ConfigError> CheckJob(const Config& config,
                                  const OptionTable* trainer,
                                  PluginRegistry& registry,
                                  absl::Span<const std::string> made) {
  Job job;
  Config trainers;
  Errors errors = ReadTables(config, made, job, trainers);
  const auto check = [&errors](const Config& part, auto check_part) {
    // A value that is no table has been reported.
    if (part.As<Config::Table>() != nullptr) Append(check_part(part), errors);
  };
  check(job.group, [&](const Config& part) {
    return registry.Check<Communicator>(part, "auto");
  });
  for (const auto& [name, table] : job.loaders) {
    check(table, [&](const Config& part) {
      return registry.Check<Loader>(part, "default");
    });
  }
  for (const auto* const sinks : {&job.metrics, &job.rank_metrics}) {
    for (const auto& [name, table] : *sinks) {
      check(table, [&, key = name](const Config& part) {
        return registry.Check<MetricsSink>(part, key);
      });
    }
  }
  CheckOptions(config, "checkpoint", Validate(job.checkpoint),
               {"path", "every_steps", "keep"}, errors);
  if (trainer != nullptr) Append(trainer->ReadAll(kTrainer, trainers), errors);
  SortByLocation(errors);
  return errors;
}

absl::StatusOr<std::unique_ptr<Communicator>> Job::MakeGroup(
    PluginRegistry& registry, World& ranks) const {
  PluginContext context;
  context.world = &ranks;
  return registry.CreateFrom<Communicator>(group, context, "auto");
}

absl::StatusOr<std::unique_ptr<Loader>> Job::MakeLoader(
    PluginRegistry& registry, absl::string_view name,
    const PluginContext& given) const {
  const auto found = loaders.find(std::string(name));
  if (found == loaders.end()) {
    std::vector<std::string> names;
    for (const auto& [known, table] : loaders) names.push_back(known);
    return absl::NotFoundError(
        absl::StrCat("the job has no table [loader.", name,
                     "]: there is no loader ", SayUnknown(name, names),
                     names.empty() ? "; --config=FILE names the "
                                     "job's text"
                                   : ""));
  }
  PluginContext context = given;
  if (gradients.exact) context.shards = gradients.shards;
  absl::StatusOr<std::unique_ptr<Loader>> loader =
      registry.CreateFrom<Loader>(found->second, context, "default");
  if (loader.ok()) return loader;
  return internal_base::InPart(loader.status(), absl::StrCat("loader.", name),
                               Config());
}

absl::StatusOr<std::vector<std::unique_ptr<MetricsSink>>> Job::MakeMetricsSinks(
    PluginRegistry& registry, const PluginContext& context) const {
  return MakeSinks(metrics, registry, context);
}

absl::StatusOr<std::vector<std::unique_ptr<MetricsSink>>>
Job::MakeRankMetricsSinks(PluginRegistry& registry,
                          const PluginContext& context) const {
  return MakeSinks(rank_metrics, registry, context);
}

}  // namespace lockstep
