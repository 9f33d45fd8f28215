// Prints augmentation parameters that are the same on every machine, drawn by
// the workers of a loader, by way of Lockstep as an outside dependency.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/base/status_macros.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/presets.h"

namespace {

class Augmentations : public lockstep::Dataset {
 public:
  int64_t size() const override { return 3; }
  absl::Span<const lockstep::FieldSpec> fields() const override {
    return fields_;
  }
  absl::Status Read(int64_t, lockstep::SampleContext& context,
                    lockstep::SampleRow& row) override {
    LOCKSTEP_RETURN_IF_ERROR(row.Set(0, context.rng().Uniform(0.8, 1.0)));
    return row.Set(1, context.rng().Below(2) == 1);
  }

 private:
  const std::vector<lockstep::FieldSpec> fields_ = {
      {"scale", lockstep::DType::kF64, {}, 0},
      {"flip", lockstep::DType::kBool, {}, 0}};
};

absl::Status Run() {
  LOCKSTEP_ASSIGN_OR_RETURN(auto order, lockstep::SequentialSampler(3));
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler,
                            lockstep::BatchSampler(std::move(order), 2, false));
  lockstep::LoaderOptions options;
  options.seed = 7;
  options.num_workers = 2;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto loader,
      lockstep::Loader::Create(std::make_shared<Augmentations>(),
                               std::move(sampler), options));
  for (auto& batch : loader->Epoch(1)) {
    LOCKSTEP_RETURN_IF_ERROR(batch.status());
    LOCKSTEP_ASSIGN_OR_RETURN(const auto scale, batch->Values<double>("scale"));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto flip, batch->Values<bool>("flip"));
    for (int64_t row = 0; row < batch->valid(); ++row) {
      std::printf("position %d: scale %.6f, %s\n",
                  static_cast<int>(batch->positions()[row]), scale[row],
                  flip[row] ? "flipped" : "as it is");
    }
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
