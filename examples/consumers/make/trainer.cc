// Runs on two or more ranks. Each rank adds up the samples that it gets, and
// all ranks together get each sample once.
//
//   lockstep launch -n 2 -- ./trainer
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace {

constexpr int64_t kSamples = 1000;

absl::Status Run() {
  lockstep::PluginRegistry registry;
  LOCKSTEP_RETURN_IF_ERROR(lockstep::RegisterLockstep(registry));

  lockstep::WorldOptions options;
  options.on_slow = [](absl::string_view what) {
    std::fprintf(stderr, "slow: %s\n", std::string(what).c_str());
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world,
                            lockstep::World::FromEnvironment(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup());

  std::vector<int64_t> numbers(kSamples);
  std::iota(numbers.begin(), numbers.end(), 0);
  lockstep::PluginContext context;
  context.world = world.get();
  LOCKSTEP_ASSIGN_OR_RETURN(
      context.dataset,
      lockstep::TensorDataset::Create({lockstep::NamedTensor::Own<int64_t>(
          "number", {kSamples}, numbers)}));
  lockstep::Config settings;
  lockstep::Config& sampler = settings.Set("sampler", lockstep::Config());
  sampler.Set("name", "native_shuffle");
  sampler.Set("global_batch_size", 64);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto loader,
      registry.Create<lockstep::Loader>("default", context, settings));

  std::vector<int64_t> sum(1);
  for (auto& batch : loader->Epoch(0)) {
    LOCKSTEP_RETURN_IF_ERROR(batch.status());
    LOCKSTEP_ASSIGN_OR_RETURN(const auto values,
                              batch->Values<int64_t>("number"));
    const auto samples = static_cast<size_t>(batch->valid());
    for (const int64_t value : values.first(samples)) sum[0] += value;
  }
  const lockstep::Buffer buffer = lockstep::BufferOf(absl::MakeSpan(sum));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const lockstep::Work work,
      group->AllReduce(buffer, buffer, lockstep::ReduceOp::kSum));
  LOCKSTEP_RETURN_IF_ERROR(work.Wait());
  if (sum[0] != kSamples * (kSamples - 1) / 2) {
    return absl::InternalError("the sum over all ranks is wrong");
  }
  std::printf("rank %d of %d: all samples came once\n", group->rank(),
              group->size());
  return group->Close();
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
