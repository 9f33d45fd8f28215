// Compiles the examples of docs/data.md and docs/migrating-from-pytorch.md,
// which are read from the documents. The functions around them declare the
// names that the documents leave out.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/pinned_memory.h"
#include "lockstep/sampler/presets.h"

namespace {

using ::testing::ElementsAre;

#include "lockstep/docs/snippets/data/dataset.inc"

std::vector<std::vector<int64_t>> trained_indices;
void Train(absl::Span<const int64_t> indices) {
  trained_indices.emplace_back(indices.begin(), indices.end());
}

absl::Status Sampling() {
#include "lockstep/docs/snippets/data/sampling.inc"
  return lockstep::DistributedSampler(options).value()->RestoreState(state);
}

TEST(DataDocument, Sampling) {
  LOCKSTEP_ASSERT_OK(Sampling());
  EXPECT_THAT(trained_indices, ElementsAre(ElementsAre(19, 6, 5, 11),
                                           ElementsAre(14, 21, 15, 22)));
}

int64_t trained_rows = 0;
void Train(absl::Span<const int32_t> tokens, absl::Span<const int64_t> splits) {
  EXPECT_EQ(splits.back(), static_cast<int64_t>(tokens.size()));
  trained_rows += static_cast<int64_t>(splits.size()) - 1;
}
void Train(const lockstep::Batch& batch) { trained_rows += batch.valid(); }

std::unique_ptr<lockstep::Sampler> MakeSampler(int64_t size) {
  lockstep::DistributedSamplerOptions options;
  options.size = size;
  options.num_replicas = 1;
  options.rank = 0;
  options.batch_size = 10;
  return lockstep::DistributedSampler(options).value();
}

absl::Status Loading() {
  auto sampler = MakeSampler(Texts().size());
#include "lockstep/docs/snippets/data/loading.inc"
  return absl::OkStatus();
}

TEST(DataDocument, Loading) {
  trained_rows = 0;
  LOCKSTEP_ASSERT_OK(Loading());
  EXPECT_EQ(trained_rows, Texts().size());
}

// Reads 3 batches of 10 samples in epoch 88, and returns the state after them.
std::string SavedIn(lockstep::Loader& loader) {
  EXPECT_TRUE(loader.StartEpoch(88).ok());
  lockstep::Batch batch;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(*loader.Next(batch));
  return *loader.SaveState();
}

std::unique_ptr<lockstep::Loader> MakeLoader() {
  return lockstep::Loader::Create(std::make_shared<Texts>(),
                                  MakeSampler(Texts().size()), {})
      .value();
}

absl::Status Resuming(const std::string& saved) {
  const auto loader = MakeLoader();
#include "lockstep/docs/snippets/data/resuming.inc"
  return absl::OkStatus();
}

absl::Status ResumingFromPyTorch(const std::string& saved) {
  using lockstep::Batch;
  const auto loader = MakeLoader();
#include "lockstep/docs/snippets/migrating/resuming.inc"
  return absl::OkStatus();
}

TEST(DataDocument, ResumingReadsTheRest) {
  const std::string saved = SavedIn(*MakeLoader());
  for (const auto resume : {Resuming, ResumingFromPyTorch}) {
    trained_rows = 0;
    LOCKSTEP_ASSERT_OK(resume(saved));
    EXPECT_EQ(trained_rows, 2 * Texts().size() - 30);  // in epochs 88 and 89
  }
}

void Train(absl::Span<const float> /*image*/, int64_t /*rows*/,
           void* /*stream*/) {}

// This example needs a GPU, so it is only compiled.
[[maybe_unused]] absl::Status Pinned(
    const lockstep::World* world,
    const std::shared_ptr<lockstep::Dataset>& dataset,
    std::unique_ptr<lockstep::Sampler> sampler, void* stream) {
  lockstep::LoaderOptions options;
#include "lockstep/docs/snippets/data/pinned.inc"
  return absl::OkStatus();
}

}  // namespace
