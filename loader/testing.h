// Helpers of the loader's tests: a dataset with every kind of field, and
// digests of the batches that a loader gives out.
#ifndef LOCKSTEP_LOADER_TESTING_H_
#define LOCKSTEP_LOADER_TESTING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {

// Sample i has id i, four random floats, and i % 7 random tokens.
// Thread-safety: thread-safe if the callbacks are.
class TestDataset : public Dataset {
 public:
  explicit TestDataset(int64_t size) : size_(size) {}

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override;
  void Hint(absl::Span<const int64_t> indices) override {
    if (on_hint) on_hint(indices);
  }

  // Called first in each Read. An error fails the sample.
  std::function<absl::Status(int64_t index, SampleContext& context)> before;
  // Called by Hint, while a step is planned.
  std::function<void(absl::Span<const int64_t> indices)> on_hint;

 private:
  const int64_t size_;
  const std::vector<FieldSpec> fields_ = {{"id", DType::kI64, {}, 0},
                                          {"x", DType::kF32, {2, 2}, 0},
                                          {"tokens", DType::kI32, {-1}, 6}};
};

// The sampler of a test.
struct TestJob {
  int64_t size = 103;
  int64_t batch_size = 8;
  int64_t world = 1;
  int64_t shards = 0;
  int64_t rank = 0;
  uint64_t seed = 7;
  Tail tail = Tail::kPad;
  Layout layout = Layout::kStrided;
  int64_t min_last_batch = 0;
  SmallLastBatch small_last_batch = SmallLastBatch::kDrop;
};

// Returns a sampler of a native shuffle, cut as the job says.
std::unique_ptr<Sampler> TestSampler(const TestJob& job);

// Returns all bytes of a batch that must be the same in every run, in a
// canonical form.
std::string BytesOf(const Batch& batch);

// Returns the SHA-256 of the batches of an epoch, in hexadecimal.
std::string DigestOfEpoch(Loader& loader, int64_t epoch);

std::string Sha256(const std::string& bytes);

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_TESTING_H_
