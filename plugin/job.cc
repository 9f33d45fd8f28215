#include "lockstep/plugin/job.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/metrics_sink.h"
#include "lockstep/plugin/options.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {
namespace {

constexpr char kTrainer[] = "trainer";

// Adds a field for each value, by the keys on its way.
void AddValues(const std::string& key, const Config& config,
               std::map<std::string, std::string>& fields) {
  const auto* const table = config.As<Config::Table>();
  if (table == nullptr) {
    fields[key] = config.ToString();
    return;
  }
  for (const auto& [inner, value] : *table) {
    AddValues(key.empty() ? inner : absl::StrCat(key, ".", inner), value,
              fields);
  }
}

Fingerprint FingerprintOf(const Config& job, const Config& trainer) {
  std::map<std::string, std::string> fields;
  for (const auto& [key, value] : *job.As<Config::Table>()) {
    if (key != "world") AddValues(key, value, fields);
  }
  fields.erase("group.device");
  AddValues(kTrainer, trainer, fields);
  Fingerprint fingerprint;
  for (const auto& [key, value] : fields) fingerprint.Add(key, value);
  return fingerprint;
}

absl::Status CheckTables(absl::string_view kind,
                         const std::map<std::string, Config>& parts) {
  for (const auto& [name, config] : parts) {
    if (config.As<Config::Table>() != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        config.place(), config.place().empty() ? "" : ": ", kind, ".", name,
        " should be a table of settings, but is ", config.ToString()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TakeArgument(absl::string_view flag,
                                         absl::string_view word, int argc,
                                         const char* const* argv, int& at) {
  if (absl::ConsumePrefix(&word, "=")) return std::string(word);
  if (++at < argc) return std::string(argv[at]);
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " needs a value behind it"));
}

}  // namespace

absl::StatusOr<Config> ConfigOfCommandLine(int argc, const char* const* argv) {
  Config config;
  std::vector<std::string> overrides;
  std::string file;
  for (int at = 1; at < argc; ++at) {
    absl::string_view word = argv[at];
    const std::string given(word);
    if (absl::ConsumePrefix(&word, "--config") &&
        (word.empty() || word[0] == '=')) {
      if (!file.empty()) {
        return absl::InvalidArgumentError(
            "--config may be given once; --set changes single values");
      }
      LOCKSTEP_ASSIGN_OR_RETURN(file,
                                TakeArgument("--config", word, argc, argv, at));
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
  if (!file.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(config, ReadConfigFile(file));
  }
  for (const std::string& assignment : overrides) {
    LOCKSTEP_RETURN_IF_ERROR(OverrideConfig(assignment, config));
  }
  return config;
}

void BindOptions(CheckpointOptions& options, OptionTable& table) {
  table.Add("path", &options.path,
            "The file, or the beginning of its name; empty: there is none.");
  table.Add("every_steps", &options.every_steps,
            "How many steps come between two; 0: an epoch.");
}

void BindOptions(Job& job, OptionTable& table) {
  table.AddTable("world", &job.world, "How the ranks find each other.");
  table.Add("group", &job.group,
            "The communicator of all ranks: its name, \"auto\" if there is "
            "none, and its settings.");
  table.Add("loader", &job.loaders,
            "The loaders, each under a name of the trainer's: a table with the "
            "loader's settings, and tables for its dataset and sampler.");
  table.Add("metrics", &job.metrics,
            "Where metrics go, each under a name: a table with the sink's "
            "settings, and its name if that is another.");
  table.AddTable("checkpoint", &job.checkpoint,
                 "Where the job keeps what it goes on from.");
}

absl::StatusOr<Job> internal_plugin::ReadJob(const Config& config,
                                             const OptionTable& trainer) {
  Job job;
  OptionTable table = TableOf(job);
  Config trainers;
  table.Add(kTrainer, &trainers, "The trainer's own settings.");
  LOCKSTEP_RETURN_IF_ERROR(table.Read("the job", config));
  LOCKSTEP_RETURN_IF_ERROR(CheckTables("loader", job.loaders));
  LOCKSTEP_RETURN_IF_ERROR(CheckTables("metrics", job.metrics));
  LOCKSTEP_RETURN_IF_ERROR(trainer.Read(kTrainer, trainers));
  job.fingerprint = FingerprintOf(config, trainer.Write());
  return job;
}

absl::StatusOr<std::unique_ptr<Communicator>> Job::MakeGroup(
    PluginRegistry& registry, World& ranks) const {
  PluginContext context;
  context.world = &ranks;
  return registry.CreateFrom<Communicator>(group, context, "auto");
}

absl::StatusOr<std::unique_ptr<Loader>> Job::MakeLoader(
    PluginRegistry& registry, absl::string_view name,
    const PluginContext& context) const {
  const auto found = loaders.find(std::string(name));
  if (found == loaders.end()) {
    std::vector<std::string> names;
    for (const auto& [known, table] : loaders) names.push_back(known);
    return absl::NotFoundError(absl::StrCat("the job has no table [loader.",
                                            name, "]: there is no loader ",
                                            SayUnknown(name, names)));
  }
  absl::StatusOr<std::unique_ptr<Loader>> loader =
      registry.CreateFrom<Loader>(found->second, context, "default");
  if (loader.ok()) return loader;
  return internal_plugin::InPart(loader.status(), absl::StrCat("loader.", name),
                                 Config());
}

absl::StatusOr<std::vector<std::unique_ptr<MetricsSink>>> Job::MakeMetricsSinks(
    PluginRegistry& registry, const PluginContext& context) const {
  std::vector<std::unique_ptr<MetricsSink>> sinks;
  for (const auto& [name, table] : metrics) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        auto sink, registry.CreateFrom<MetricsSink>(table, context, name));
    sinks.push_back(std::move(sink));
  }
  return sinks;
}

}  // namespace lockstep
