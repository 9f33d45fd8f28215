// Note 003: the seeds of workers and ranks. Alone, worker i has the global seed
// + i. With --distributed, the workers of each rank have the same seeds as
// PyTorch's.
//
//   003_worker_seeds
//   lockstep launch -n 2 -- 003_worker_seeds --distributed
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/presets.h"
#include "lockstep/sampler/torch_base_seed.h"

ABSL_FLAG(bool, distributed, false, "as a rank of a job");
ABSL_FLAG(int, num_workers, 4, "DataLoader's");
ABSL_FLAG(std::string, backend, "tcp", "auto, shm or tcp");

namespace {

constexpr int64_t kSize = 100;
constexpr int64_t kBatchSize = 10;
constexpr uint64_t kGlobalSeed = 42;

// A sample is one number of noise, which depends on the sample's position in
// the epoch, but not on the number of workers.
class Noise : public lockstep::Dataset {
 public:
  int64_t size() const override { return kSize; }
  absl::Span<const lockstep::FieldSpec> fields() const override {
    return fields_;
  }
  absl::Status Read(int64_t, lockstep::SampleContext& context,
                    lockstep::SampleRow& row) override {
    return row.Set<double>(0, context.rng().Normal());
  }

 private:
  const std::vector<lockstep::FieldSpec> fields_ = {
      {"noise", lockstep::DType::kF64, {}, 0}};
};

// Reads an epoch with workers whose seeds count from `base_seed`. Prints these
// seeds, the samples, and the sum of the noise.
absl::Status Read(std::unique_ptr<lockstep::Sampler> sampler,
                  uint64_t base_seed) {
  std::mutex mutex;
  std::condition_variable begun;
  std::map<int, uint64_t> seeds;
  lockstep::LoaderOptions options;
  options.num_workers = absl::GetFlag(FLAGS_num_workers);
  // Below, all workers must have begun, so each needs its own thread.
  options.workers = lockstep::Workers::kThreads;

  options.seed = kGlobalSeed;
  options.base_seed = base_seed;
  options.worker_init = [&](lockstep::WorkerInfo& worker) {
    std::unique_lock<std::mutex> lock(mutex);
    seeds[worker.id] = worker.seed;
    begun.notify_all();
    // Otherwise, all samples might be read before the last worker begins.
    begun.wait(lock, [&] {
      return static_cast<int>(seeds.size()) >= worker.num_workers;
    });
    return absl::OkStatus();
  };
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto loader, lockstep::Loader::Create(std::make_shared<Noise>(),
                                                  std::move(sampler), options));
  double sum = 0;
  for (auto& batch : loader->Epoch(0)) {
    LOCKSTEP_RETURN_IF_ERROR(batch.status());
    LOCKSTEP_ASSIGN_OR_RETURN(const auto noise, batch->Values<double>("noise"));
    for (const double value : noise) sum += value;
    std::printf("[%s]\n", absl::StrJoin(batch->indices(), ", ").c_str());
  }
  for (const auto& [id, seed] : seeds) {
    std::printf("worker %d: seed %s\n", id, absl::StrCat(seed).c_str());
  }
  std::printf("noise: %.17g\n", sum);
  return absl::OkStatus();
}

absl::Status ReadAlone() {
  LOCKSTEP_ASSIGN_OR_RETURN(auto order, lockstep::SequentialSampler(kSize));
  LOCKSTEP_ASSIGN_OR_RETURN(
      auto sampler,
      lockstep::BatchSampler(std::move(order), kBatchSize, false));
  return Read(std::move(sampler), kGlobalSeed);
}

absl::Status ReadAsRank() {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world,
                            lockstep::World::FromEnvironment());
  lockstep::GroupOptions group;
  group.backend = absl::GetFlag(FLAGS_backend);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto ranks, world->MakeGroup(group));
  lockstep::DistributedSamplerOptions options;
  options.size = kSize;
  options.num_replicas = world->size();
  options.rank = world->rank();
  options.batch_size = kBatchSize;
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler,
                            lockstep::DistributedSampler(options));
  // PyTorch calls torch.manual_seed(global_seed + rank) before it iterates.
  LOCKSTEP_RETURN_IF_ERROR(
      Read(std::move(sampler),
           lockstep::TorchBaseSeed(kGlobalSeed + ranks->rank())));
  return lockstep::Wait(ranks->Barrier());
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status =
      absl::GetFlag(FLAGS_distributed) ? ReadAsRank() : ReadAlone();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
