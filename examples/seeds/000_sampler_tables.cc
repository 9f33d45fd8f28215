// Note 000: the batches that PyTorch's DistributedSampler gives to each rank.
//
// The rank comes from the arguments, as in the note, or from the launcher:
//
//   000_sampler_tables --num_replicas=2 --rank=1
//   lockstep launch -n 2 -- 000_sampler_tables
#include <algorithm>
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
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/presets.h"

ABSL_FLAG(int64_t, size, 25, "the samples of the dataset");
ABSL_FLAG(int64_t, num_replicas, 0, "the ranks; 0: as the launcher says");
ABSL_FLAG(int64_t, rank, 0, "this rank, where num_replicas is given");
ABSL_FLAG(std::string, backend, "auto", "auto, shm or tcp");
ABSL_FLAG(bool, shuffle, true, "DistributedSampler's");
ABSL_FLAG(uint64_t, seed, 0, "DistributedSampler's");
ABSL_FLAG(bool, add_rank_to_seed, false, "a mistake, which is found");
ABSL_FLAG(int64_t, epochs, 1, "how often the loader is iterated");
ABSL_FLAG(bool, set_epoch, true, "each epoch by its number, not by 0");
ABSL_FLAG(bool, samples, false, "prints the dataset sample by sample");
ABSL_FLAG(bool, tell_padding, false, "says how many rows are data");

namespace {

// Sample i has three times i + 1, and a label that is 1 with probability 0.3.
// The label depends only on i, so it is the same on each rank and in each run.
class Simple : public lockstep::Dataset {
 public:
  explicit Simple(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  absl::Span<const lockstep::FieldSpec> fields() const override {
    return fields_;
  }
  absl::Status Read(int64_t index, lockstep::SampleContext&,
                    lockstep::SampleRow& row) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto x, row.Mutable<int64_t>(0));
    std::fill(x.begin(), x.end(), index + 1);
    lockstep::Random random(lockstep::RandomKey(0, 0, 0), index);
    return row.Set<int64_t>(1, random.Uniform() < 0.3 ? 1 : 0);
  }

 private:
  const int64_t size_;
  const std::vector<lockstep::FieldSpec> fields_ = {
      {"x", lockstep::DType::kI64, {3}, 0},
      {"y", lockstep::DType::kI64, {}, 0}};
};

// Prints a batch in PyTorch's format. With --samples, prints the only sample of
// the batch in NumPy's format.
absl::Status Print(const lockstep::Batch& batch) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto x, batch.Values<int64_t>("x"));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto y, batch.Values<int64_t>("y"));
  if (absl::GetFlag(FLAGS_samples)) {
    absl::PrintF("[%s] %d\n", absl::StrJoin(x, " "), y[0]);
    return absl::OkStatus();
  }
  const auto widest = static_cast<int>(
      absl::StrCat(*std::max_element(x.begin(), x.end())).size());
  for (int64_t row = 0; row < batch.rows(); ++row) {
    const int64_t value = x[3 * row];
    absl::PrintF("%s[%*d, %*d, %*d]", row == 0 ? "[tensor([" : ",\n        ",
                 widest, value, widest, value, widest, value);
  }
  absl::PrintF("]), tensor([%s])]\n", absl::StrJoin(y, ", "));
  if (absl::GetFlag(FLAGS_tell_padding)) {
    absl::PrintF("data: %d of %d rows\n", batch.valid(), batch.rows());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<lockstep::Sampler>> MakeSampler() {
  const int64_t size = absl::GetFlag(FLAGS_size);
  if (absl::GetFlag(FLAGS_samples)) {
    LOCKSTEP_ASSIGN_OR_RETURN(auto order, lockstep::SequentialSampler(size));
    return lockstep::BatchSampler(std::move(order), 1, /*drop_last=*/false);
  }
  lockstep::DistributedSamplerOptions options;
  options.size = size;
  options.num_replicas = absl::GetFlag(FLAGS_num_replicas);
  options.rank = absl::GetFlag(FLAGS_rank);
  options.shuffle = absl::GetFlag(FLAGS_shuffle);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.batch_size = 4;
  if (options.num_replicas != 0) return lockstep::DistributedSampler(options);

  LOCKSTEP_ASSIGN_OR_RETURN(const auto world,
                            lockstep::World::FromEnvironment());
  options.num_replicas = world->size();
  options.rank = world->rank();
  if (absl::GetFlag(FLAGS_add_rank_to_seed)) options.seed += options.rank;
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler,
                            lockstep::DistributedSampler(options));
  // All ranks must have the same seed, order and batches.
  lockstep::GroupOptions group;
  group.backend = absl::GetFlag(FLAGS_backend);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto ranks, world->MakeGroup(group));
  LOCKSTEP_RETURN_IF_ERROR(
      lockstep::CheckSame(*ranks, "the sampler", sampler->JobFingerprint()));
  return sampler;
}

absl::Status Run() {
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, MakeSampler());
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto loader,
      lockstep::Loader::Create(
          std::make_shared<Simple>(absl::GetFlag(FLAGS_size)),
          std::move(sampler), {}));
  for (int64_t epoch = 0; epoch < absl::GetFlag(FLAGS_epochs); ++epoch) {
    const int64_t set = absl::GetFlag(FLAGS_set_epoch) ? epoch : 0;
    for (auto& batch : loader->Epoch(set)) {
      LOCKSTEP_RETURN_IF_ERROR(batch.status());
      LOCKSTEP_RETURN_IF_ERROR(Print(*batch));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", lockstep::ToLines(status).c_str());
  return 1;
}
