// Reads the input of a fuzzer as the text of a job, as a change of a job, and
// as the settings of samplers. tools/ci/fuzz builds and runs it.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/base/option_table.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/options.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {
namespace {

struct TrainerOptions {
  double learning_rate = 0.1;
  int64_t epochs = 2;
};

void BindOptions(TrainerOptions& options, OptionTable& table) {
  table.Add("learning_rate", &options.learning_rate, "How far a step goes.");
  table.Add("epochs", &options.epochs, "How often all samples come.");
}

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

// Checks that options which were read stay the same when they are printed and
// read again.
template <typename Options>
void CheckRoundTrip(const Config& config) {
  const auto options = ReadOptions<Options>("it", config);
  if (!options.ok()) return;
  ++fuzz_accepts;
  const std::string text = WriteOptions(*options).ToText();
  const auto config_again = ParseConfig(text, "again");
  Require(config_again.ok(), "options print no TOML");
  const auto again = ReadOptions<Options>("it", *config_again);
  Require(again.ok(), "printed options are not accepted");
  Require(WriteOptions(*again).ToText() == text, "options have changed");
}

void CheckAllOptions(const Config& config) {
  CheckRoundTrip<WorldOptions>(config);
  CheckRoundTrip<GroupOptions>(config);
  CheckRoundTrip<LoaderOptions>(config);
  CheckRoundTrip<FileFolderOptions>(config);
  CheckRoundTrip<TfRecordDatasetOptions>(config);
  CheckRoundTrip<NpyFile>(config);
  CheckRoundTrip<CacheOptions>(config);
  CheckRoundTrip<CheckpointOptions>(config);
  CheckRoundTrip<TrainerOptions>(config);
}

PluginRegistry& Registry() {
  static PluginRegistry& registry = *[] {
    auto* const made = new PluginRegistry();
    Require(RegisterLockstep(*made).ok(), "Lockstep can't be registered");
    return made;
  }();
  return registry;
}

const PluginContext& Context() {
  static const PluginContext& context = *[] {
    auto* const made = new PluginContext();
    const std::vector<int64_t> numbers = {1, 2, 3, 1, 2, 3, 1, 2};
    auto dataset = TensorDataset::Create(
        {NamedTensor::Own<int64_t>("label", {8}, numbers),
         NamedTensor::Own<int64_t>("length", {8}, numbers)});
    Require(dataset.ok(), "there is no dataset");
    made->dataset = *std::move(dataset);
    made->world_size = 2;
    made->rank = 1;
    return made;
  }();
  return context;
}

void CheckTable(const Config& config) {
  CheckAllOptions(config);
  (void)Registry().CreateFrom<Sampler>(config, Context());
  const auto* const table = config.As<Config::Table>();
  if (table == nullptr) return;
  for (const auto& [key, value] : *table) CheckTable(value);
}

void Check(const std::string& text) {
  Config changed;
  if (OverrideConfig(text, changed).ok()) CheckTable(changed);

  const auto config = ParseConfig(text, "job.toml");
  if (!config.ok()) {
    Require(absl::IsInvalidArgument(config.status()), "it is another error");
    return;
  }
  const std::string printed = config->ToText();
  const auto again = ParseConfig(printed, "again");
  Require(again.ok(), "what was printed is no TOML");
  Require(again->ToText() == printed, "what was printed is something else");
  TrainerOptions trainer;
  const auto job = ReadJob(*config, &trainer);
  Require(job.ok() || absl::IsInvalidArgument(job.status()),
          "it is another error");
  CheckTable(*config);
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::Check(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
