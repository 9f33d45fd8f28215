// A trainer that is configured by Abseil's flags. It copies them into a Config
// and reads no text, so it also works in builds without TOML.
//
//   flags --order=stratified --batch=32 --workers=2
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

ABSL_FLAG(std::string, order, "distributed", "a sampler of lockstep parts");
ABSL_FLAG(int64_t, batch, 16, "samples of all ranks in a step");
ABSL_FLAG(int64_t, workers, 2, "how many samples are read at a time");
ABSL_FLAG(uint64_t, seed, 0, "seed of the order");

namespace {

lockstep::Config ConfigOfFlags() {
  lockstep::Config settings;
  settings.Set("num_workers", absl::GetFlag(FLAGS_workers));
  lockstep::Config& sampler = settings.Set("sampler", lockstep::Config());
  sampler.Set("name", absl::GetFlag(FLAGS_order));
  sampler.Set("global_batch_size", absl::GetFlag(FLAGS_batch));
  sampler.Set("seed", absl::GetFlag(FLAGS_seed));
  return settings;
}

absl::Status Run() {
  lockstep::PluginRegistry registry;
  LOCKSTEP_RETURN_IF_ERROR(lockstep::RegisterLockstep(registry));
  std::vector<int64_t> labels(100);
  for (int64_t i = 0; i < 100; ++i) labels[i] = i % 3;
  lockstep::PluginContext context;
  LOCKSTEP_ASSIGN_OR_RETURN(
      context.dataset,
      lockstep::TensorDataset::Create(
          {lockstep::NamedTensor::Own<int64_t>("label", {100}, labels)}));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto loader,
      registry.Create<lockstep::Loader>("default", context, ConfigOfFlags()));
  for (auto& batch : loader->Epoch(0)) {
    LOCKSTEP_RETURN_IF_ERROR(batch.status());
    std::printf("step %d: %d samples\n", static_cast<int>(batch->step()),
                static_cast<int>(batch->valid()));
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("reads samples in an order that flags name");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
