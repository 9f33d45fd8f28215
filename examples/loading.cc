// Loads batches of texts of different lengths. Each batch is padded to its
// longest text, and a random word of each text is left out. Loading is
// interrupted, and continues with another number of workers.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/presets.h"

namespace {

constexpr int64_t kLongest = 6;
constexpr int32_t kNoWord = -1;

// The dataset of the texts.
// Thread-safety: thread-safe.
class Texts : public lockstep::Dataset {
 public:
  int64_t size() const override { return 10; }
  absl::Span<const lockstep::FieldSpec> fields() const override {
    return fields_;
  }
  // Text i has the words 100 * i, 100 * i + 1, ..., and one of them is left
  // out.
  absl::Status Read(int64_t index, lockstep::SampleContext& context,
                    lockstep::SampleRow& row) override {
    const int64_t words = 2 + index % (kLongest - 1);
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<int32_t> tokens,
                              row.MutableRagged<int32_t>(0, {words - 1}));
    const auto dropped = static_cast<int64_t>(context.rng().Below(words));
    for (int64_t i = 0; i < words - 1; ++i) {
      tokens[i] = static_cast<int32_t>(100 * index + i + (i >= dropped));
    }
    return row.Set<int64_t>(1, index);
  }

 private:
  const std::vector<lockstep::FieldSpec> fields_ = {
      {"tokens", lockstep::DType::kI32, {-1}, kLongest},
      {"label", lockstep::DType::kI64, {}, 0}};
};

absl::Status Print(const lockstep::Batch& batch) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto labels, batch.Values<int64_t>("label"));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto tokens, batch.Values<int32_t>("tokens"));
  const int64_t columns = static_cast<int64_t>(tokens.size()) / batch.rows();
  std::printf("step %d\n", static_cast<int>(batch.step()));
  for (int64_t row = 0; row < batch.rows(); ++row) {
    std::printf("  text %d:", static_cast<int>(labels[row]));
    for (int64_t i = 0; i < columns; ++i) {
      std::printf(" %4d", tokens[row * columns + i]);
    }
    std::printf("\n");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<lockstep::Loader>> MakeLoader(int num_workers) {
  lockstep::DistributedSamplerOptions order;  // PyTorch's order, bit for bit
  order.size = 10;
  order.batch_size = 3;
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, lockstep::DistributedSampler(order));
  lockstep::LoaderOptions options;
  options.num_workers = num_workers;
  options.seed = 7;
  options.collate = [](lockstep::BatchView& batch, lockstep::Random&) {
    return batch.PadToLongest<int32_t>("tokens", kNoWord).status();
  };
  return lockstep::Loader::Create(std::make_shared<Texts>(), std::move(sampler),
                                  options);
}

absl::Status Run() {
  std::string state;
  {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto loader, MakeLoader(2));
    LOCKSTEP_RETURN_IF_ERROR(loader->StartEpoch(0));
    lockstep::Batch batch;
    for (int step = 0; step < 2; ++step) {
      LOCKSTEP_RETURN_IF_ERROR(loader->Next(batch).status());
      LOCKSTEP_RETURN_IF_ERROR(Print(batch));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(state, loader->SaveState());
  }  // batches that were read ahead are not lost

  LOCKSTEP_ASSIGN_OR_RETURN(const auto loader, MakeLoader(0));
  LOCKSTEP_RETURN_IF_ERROR(loader->RestoreState(state));
  for (auto& batch : loader->Epoch(0)) {  // the rest of the epoch
    LOCKSTEP_RETURN_IF_ERROR(batch.status());
    LOCKSTEP_RETURN_IF_ERROR(Print(*batch));
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
