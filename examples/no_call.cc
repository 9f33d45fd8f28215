// A trainer that makes no call to register. It is linked with
// @lockstep//:static_register, and its own dataset registers itself in the same
// way. If such a file is in a library, its target needs alwayslink.
//
//   no_call
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/registry.h"

namespace {

using lockstep::Config;
using lockstep::Dataset;
using lockstep::PluginContext;
using lockstep::PluginRegistry;

struct CountOptions {
  int64_t size = 6;
};

void BindOptions(CountOptions& options, lockstep::OptionTable& table) {
  table.Add("size", &options.size, "How many numbers there are.");
}

absl::StatusOr<std::shared_ptr<Dataset>> MakeCount(
    const PluginContext&, const CountOptions& options) {
  if (options.size < 1) {
    return absl::InvalidArgumentError("count should have a size of 1 or more");
  }
  std::vector<int64_t> numbers(options.size);
  for (int64_t i = 0; i < options.size; ++i) numbers[i] = i;
  return lockstep::TensorDataset::Create(
      {lockstep::NamedTensor::Own<int64_t>("number", {options.size}, numbers)});
}

[[maybe_unused]] const bool kCountIsRegistered = [] {
  PluginRegistry& registry = PluginRegistry::Global();
  registry.NoteError(
      registry.Add<Dataset>("count", "0, 1, 2 and so on.", MakeCount));
  return true;
}();

absl::Status Run() {
  Config settings;
  settings.Set("dataset", Config()).Set("name", "count");
  Config& sampler = settings.Set("sampler", Config());
  sampler.Set("name", "sequential");
  sampler.Set("global_batch_size", 3);
  // The first Create returns an error of the registrations before main, if any.
  LOCKSTEP_ASSIGN_OR_RETURN(const auto loader,
                            PluginRegistry::Global().Create<lockstep::Loader>(
                                "default", PluginContext(), settings));
  for (auto& batch : loader->Epoch(0)) {
    LOCKSTEP_RETURN_IF_ERROR(batch.status());
    LOCKSTEP_ASSIGN_OR_RETURN(const auto numbers,
                              batch->Values<int64_t>("number"));
    for (const int64_t number : numbers) {
      std::printf(" %d", static_cast<int>(number));
    }
    std::printf("\n");
  }
  return absl::OkStatus();
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
