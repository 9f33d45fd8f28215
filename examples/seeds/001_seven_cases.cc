// Note 001: the samples that two ranks get in seven cases. There is a barrier
// after each step.
//
//   lockstep launch -n 2 -- 001_seven_cases --size=8 --drop_last --set_epoch
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/presets.h"

ABSL_FLAG(int64_t, size, 8, "the samples of the dataset");
ABSL_FLAG(bool, distributed, true, "by a DistributedSampler");
ABSL_FLAG(bool, drop_last, false, "the DataLoader's");
ABSL_FLAG(bool, set_epoch, false, "each epoch by its number, not by 0");
ABSL_FLAG(std::string, backend, "auto", "auto, shm or tcp");

namespace {

// A sample has an image of noise, a label, and its own number. The noise
// depends on the sample's position in the epoch, so it is the same in each run.
class InnerDataset : public lockstep::Dataset {
 public:
  explicit InnerDataset(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  absl::Span<const lockstep::FieldSpec> fields() const override {
    return fields_;
  }
  absl::Status Read(int64_t index, lockstep::SampleContext& context,
                    lockstep::SampleRow& row) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto image, row.Mutable<float>(0));
    for (float& value : image) {
      value = static_cast<float>(context.rng().Uniform());
    }
    const auto label = static_cast<int64_t>(context.rng().Below(9));
    LOCKSTEP_RETURN_IF_ERROR(row.Set<int64_t>(1, label));
    return row.Set<int64_t>(2, index);
  }

 private:
  const int64_t size_;
  const std::vector<lockstep::FieldSpec> fields_ = {
      {"image", lockstep::DType::kF32, {3, 224, 224}, 0},
      {"label", lockstep::DType::kI64, {}, 0},
      {"item", lockstep::DType::kI64, {}, 0}};
};

absl::StatusOr<std::unique_ptr<lockstep::Sampler>> MakeSampler(
    const lockstep::World& world) {
  constexpr int64_t kBatchSize = 4;
  if (!absl::GetFlag(FLAGS_distributed)) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        auto order, lockstep::SequentialSampler(absl::GetFlag(FLAGS_size)));
    return lockstep::BatchSampler(std::move(order), kBatchSize,
                                  absl::GetFlag(FLAGS_drop_last));
  }
  lockstep::DistributedSamplerOptions options;
  options.size = absl::GetFlag(FLAGS_size);
  options.num_replicas = world.size();
  options.rank = world.rank();
  options.batch_size = kBatchSize;
  options.drop_last_batch = absl::GetFlag(FLAGS_drop_last);
  return lockstep::DistributedSampler(options);
}

absl::Status Run() {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world,
                            lockstep::World::FromEnvironment());
  lockstep::GroupOptions options;
  options.backend = absl::GetFlag(FLAGS_backend);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup(options));
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, MakeSampler(*world));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto loader,
      lockstep::Loader::Create(
          std::make_shared<InnerDataset>(absl::GetFlag(FLAGS_size)),
          std::move(sampler), {}));
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    // In PyTorch, the epoch stays 0 unless the program calls set_epoch.
    const int64_t set = absl::GetFlag(FLAGS_set_epoch) ? epoch : 0;
    for (auto& batch : loader->Epoch(set)) {
      LOCKSTEP_RETURN_IF_ERROR(batch.status());
      LOCKSTEP_ASSIGN_OR_RETURN(const auto items,
                                batch->Values<int64_t>("item"));
      std::printf("tensor([%s])\n", absl::StrJoin(items, ", ").c_str());
      LOCKSTEP_RETURN_IF_ERROR(lockstep::Wait(group->Barrier()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // prints line by line
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
