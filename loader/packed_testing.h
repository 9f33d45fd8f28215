// Helpers of the tests of loaders whose order packs: a dataset of ragged
// samples, loaders of it, and a check of batches.
#ifndef LOCKSTEP_LOADER_PACKED_TESTING_H_
#define LOCKSTEP_LOADER_PACKED_TESTING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/packed.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {

// Sample i has as many tokens as the lengths say, and three numbers for each.
// Thread-safety: thread-safe if the callbacks are.
class RaggedDataset : public Dataset {
 public:
  explicit RaggedDataset(std::vector<int64_t> lengths)
      : lengths_(std::move(lengths)) {}

  static int32_t TokenOf(int64_t index, int64_t element) {
    return static_cast<int32_t>(1 + 1000 * index + element);
  }

  int64_t size() const override {
    return static_cast<int64_t>(lengths_.size());
  }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override {
    if (before) LOCKSTEP_RETURN_IF_ERROR(before(index));
    const int64_t length = lengths_[static_cast<size_t>(index)];
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<int32_t> tokens,
                              row.MutableRagged<int32_t>(0, {length}));
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = TokenOf(index, static_cast<int64_t>(i));
    }
    const int64_t boxes_of = boxes ? boxes(index) : length;
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<double> numbers,
                              row.MutableRagged<double>(1, {boxes_of, 3}));
    for (double& number : numbers) number = 1 + context.rng().Uniform();
    return absl::OkStatus();
  }
  void Hint(absl::Span<const int64_t> indices) override {
    if (on_hint) on_hint(indices);
  }

  // Called first in each Read. An error fails the sample.
  std::function<absl::Status(int64_t index)> before;
  // Returns the boxes of a sample, if not as many as tokens.
  std::function<int64_t(int64_t index)> boxes;
  std::function<void(absl::Span<const int64_t> indices)> on_hint;

 private:
  const std::vector<int64_t> lengths_;
  const std::vector<FieldSpec> fields_ = {{"tokens", DType::kI32, {-1}, 50},
                                          {"boxes", DType::kF64, {-1, 3}, 150}};
};

struct PackedJob {
  PackedJob() {
    for (int64_t i = 0; i < 120; ++i) lengths.push_back(i * 7 % 11);
  }

  std::vector<int64_t> lengths;  // by which the order packs
  int64_t row_length = 10;
  bool cut = false;
  int64_t batch_size = 4;
  int64_t world = 1;
  int64_t shards = 0;
  int64_t rank = 0;
  Tail tail = Tail::kUneven;
  LoaderOptions loader;
};

inline std::unique_ptr<Sampler> PackedSampler(const PackedJob& job) {
  PackedOptions options;
  options.window.inner = *NativeShuffle::Create(
      {static_cast<int64_t>(job.lengths.size()), /*seed=*/7});
  options.window.global_batch = 12;
  options.window.batches = 2;
  options.lengths = job.lengths;
  options.row_length = job.row_length;
  options.cut = job.cut;
  SamplerOptions sampler;
  sampler.cut.batch_size = job.batch_size;
  sampler.cut.world = job.world;
  sampler.cut.shards = job.shards;
  sampler.cut.tail = job.tail;
  sampler.rank = job.rank;
  return *Sampler::Create(*PackedOrder::Create(std::move(options)), sampler);
}

inline std::unique_ptr<Loader> MakePackedLoader(
    const PackedJob& job, std::shared_ptr<Dataset> dataset) {
  return std::move(
             Loader::Create(std::move(dataset), PackedSampler(job), job.loader))
      .value();
}

// Returns the bytes of the rows of a batch that must be the same in every run,
// whatever the parts of a step are.
inline std::string RowsOf(const BatchView& batch) {
  std::string bytes;
  const auto append = [&bytes](const auto& values) {
    bytes.append(reinterpret_cast<const char*>(values.data()),
                 values.size() * sizeof(values[0]));
  };
  for (int64_t row = 0; row < batch.rows(); ++row) {
    bytes += row < batch.valid() ? "data" : "more";
    const auto begin = static_cast<size_t>(batch.sample_splits()[row]);
    const auto count =
        static_cast<size_t>(batch.sample_splits()[row + 1]) - begin;
    append(batch.indices().subspan(begin, count));
    append(batch.positions().subspan(begin, count));
    append(*batch.Row<int32_t>("tokens", row));
    append(*batch.Row<double>("boxes", row));
    append(*batch.Row<int32_t>("segment", row));
    append(*batch.Row<int32_t>("position", row));
  }
  return bytes;
}

// Expects a row that has these samples, of which each has the index and the
// number in the row, one after the other.
inline void ExpectRow(const BatchView& batch, int64_t row, const PackedJob& job,
                      const std::vector<std::pair<int64_t, int32_t>>& samples) {
  SCOPED_TRACE(testing::Message() << "row " << row);
  std::vector<int32_t> tokens, segments, positions;
  for (const auto& [index, number] : samples) {
    const int64_t length =
        std::min(job.lengths[static_cast<size_t>(index)], job.row_length);
    for (int64_t i = 0; i < length; ++i) {
      tokens.push_back(RaggedDataset::TokenOf(index, i));
      segments.push_back(number);
      positions.push_back(static_cast<int32_t>(i));
    }
  }
  const size_t filled = tokens.size();
  const auto length = static_cast<size_t>(job.row_length);
  tokens.resize(length, 0);
  segments.resize(length, -1);
  positions.resize(length, 0);
  EXPECT_THAT(*batch.Row<int32_t>("tokens", row),
              testing::ElementsAreArray(tokens));
  EXPECT_THAT(*batch.Row<int32_t>("segment", row),
              testing::ElementsAreArray(segments));
  EXPECT_THAT(*batch.Row<int32_t>("position", row),
              testing::ElementsAreArray(positions));
  const auto boxes = *batch.Row<double>("boxes", row);
  ASSERT_EQ(boxes.size(), 3 * length);
  for (size_t i = 0; i < boxes.size(); ++i) {
    EXPECT_EQ(boxes[i] != 0, i < 3 * filled) << i;
  }
}

// Expects the samples of sample_splits() in each row of a batch.
inline void ExpectPacked(const BatchView& batch, const PackedJob& job) {
  const auto splits = batch.sample_splits();
  ASSERT_EQ(static_cast<int64_t>(splits.size()), batch.rows() + 1);
  ASSERT_EQ(splits[0], 0);
  ASSERT_EQ(static_cast<size_t>(splits.back()), batch.indices().size());
  ASSERT_EQ(batch.positions().size(), batch.indices().size());
  for (int64_t row = 0; row < batch.rows(); ++row) {
    std::vector<std::pair<int64_t, int32_t>> samples;
    for (int64_t i = splits[row]; i < splits[row + 1]; ++i) {
      samples.emplace_back(batch.indices()[i],
                           static_cast<int32_t>(i - splits[row]));
    }
    ExpectRow(batch, row, job, samples);
  }
}

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_PACKED_TESTING_H_
