// Tests of samples that can't be read, in loaders whose order packs several of
// them into a row.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/packed_testing.h"
#include "lockstep/sampler/order_conformance.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

bool IsBad(int64_t index) { return index % 5 == 3; }

std::shared_ptr<RaggedDataset> BadDataset(const std::vector<int64_t>& lengths) {
  auto dataset = std::make_shared<RaggedDataset>(lengths);
  dataset->before = [](int64_t index) -> absl::Status {
    if (!IsBad(index)) return absl::OkStatus();
    if (index % 2 == 0) throw std::runtime_error(absl::StrCat("torn ", index));
    return absl::DataLossError(absl::StrCat("torn ", index));
  };
  return dataset;
}

class PackedErrors : public testing::TestWithParam<int> {
 protected:
  PackedErrors() {
    job_.loader.num_workers = GetParam();
    job_.loader.workers = Workers::kThreads;
  }

  std::unique_ptr<Loader> Make(OnError on_error) {
    job_.loader.on_error = on_error;
    return MakePackedLoader(job_, BadDataset(job_.lengths));
  }

  PackedJob job_;
};

INSTANTIATE_TEST_SUITE_P(Workers, PackedErrors, testing::Values(0, 1, 3));

// Errors come by row, and in a row by the order of its samples.
template <typename Error>
void ExpectSorted(absl::Span<const Error> errors) {
  for (size_t i = 1; i < errors.size(); ++i) {
    EXPECT_LE(errors[i - 1].row, errors[i].row);
  }
}

// Returns the index of each sample of a row that was read, and its number.
std::vector<std::pair<int64_t, int32_t>> SamplesOf(const BatchView& batch,
                                                   int64_t row) {
  const int64_t begin = batch.sample_splits()[row];
  std::vector<std::pair<int64_t, int32_t>> samples;
  for (int64_t i = begin; i < batch.sample_splits()[row + 1]; ++i) {
    EXPECT_EQ(batch.indices()[i] < 0, batch.positions()[i] < 0);
    if (batch.indices()[i] < 0) continue;
    samples.emplace_back(batch.indices()[i], static_cast<int32_t>(i - begin));
  }
  return samples;
}

TEST_P(PackedErrors, AStepFailsWithItsFirstSample) {
  const auto loader = Make(OnError::kFail);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  std::set<int64_t> failed;
  Batch batch;
  while (true) {
    const NextResult more = loader->Next(batch);
    if (more.ok() && !*more) break;
    if (more.ok()) {
      ExpectPacked(batch, job_);
      continue;
    }
    const auto errors = loader->errors();
    ASSERT_FALSE(errors.empty());
    ExpectSorted(errors);
    EXPECT_THAT(more.status().message(),
                AllOf(HasSubstr(absl::StrCat("row ", errors[0].row, ": sample ",
                                             errors[0].index)),
                      HasSubstr(absl::StrCat("torn ", errors[0].index))));
    for (size_t i = 0; i < errors.size(); ++i) {
      EXPECT_TRUE(failed.insert(errors[i].index).second);
      if (i > 0 && errors[i].row == errors[i - 1].row) {
        EXPECT_GT(errors[i].position, errors[i - 1].position);
      }
    }
  }
  EXPECT_EQ(failed.size(), 24u);
  EXPECT_THAT(failed, Each(testing::ResultOf(IsBad, true)));
}

// The other samples of the row move up and keep their numbers.
TEST_P(PackedErrors, ASkippedSampleLeavesItsPlaceEmpty) {
  const auto loader = Make(OnError::kSkip);
  std::set<int64_t> read, failed;
  int64_t elements = 0, empty = 0;
  for (absl::StatusOr<Batch>& batch : loader->Epoch(0)) {
    ASSERT_THAT(batch, IsOk());
    EXPECT_EQ(batch->valid(), batch->rows());
    ExpectSorted(batch->errors());
    for (const SampleError& error : batch->errors()) {
      EXPECT_TRUE(IsBad(error.index));
      EXPECT_TRUE(failed.insert(error.index).second);
    }
    const auto splits = batch->sample_splits();
    size_t missing = static_cast<size_t>(splits.back());
    for (int64_t row = 0; row < batch->rows(); ++row) {
      const auto samples = SamplesOf(*batch, row);
      ExpectRow(*batch, row, job_, samples);
      missing -= samples.size();
      for (const auto& [index, number] : samples) {
        EXPECT_TRUE(read.insert(index).second);
      }
      const auto segments = *batch->Row<int32_t>("segment", row);
      for (const int32_t segment : segments) {
        ++elements;
        empty += segment < 0;
      }
    }
    EXPECT_EQ(missing, batch->errors().size());
  }
  EXPECT_EQ(failed.size(), 24u);
  EXPECT_EQ(read.size(), 96u);
  const LoaderMetrics metrics = loader->Metrics();
  EXPECT_EQ(metrics.samples, 96);
  EXPECT_EQ(metrics.failed_samples, 24);
  EXPECT_EQ(metrics.packed_elements, elements);
  EXPECT_EQ(metrics.empty_elements, empty);
}

// Returns the bytes of an epoch, and checks what it substituted.
std::string Substituted(Loader& loader, const PackedJob& job) {
  const std::vector<int64_t> stream = ReadEpoch(loader.order(), 0);
  std::string bytes;
  std::set<int64_t> wanted;
  for (absl::StatusOr<Batch>& batch : loader.Epoch(0)) {
    EXPECT_THAT(batch, IsOk());
    if (!batch.ok()) break;
    bytes += RowsOf(*batch);
    ExpectSorted(batch->errors());
    ExpectSorted(batch->substitutions());
    for (const Substitution& substitution : batch->substitutions()) {
      EXPECT_TRUE(IsBad(substitution.wanted));
      EXPECT_FALSE(IsBad(substitution.used));
      EXPECT_TRUE(wanted.insert(substitution.wanted).second);
      bytes += absl::StrCat(substitution.row, " ", substitution.wanted, " ",
                            substitution.used, "\n");
    }
    for (const SampleError& error : batch->errors()) {
      EXPECT_TRUE(wanted.insert(error.index).second);
      bytes += absl::StrCat(error.row, " ", error.index, "\n");
    }
    const auto splits = batch->sample_splits();
    for (int64_t row = 0; row < batch->rows(); ++row) {
      // A substitute comes after those that were wanted. Its number is that of
      // the sample in whose place it is.
      std::vector<std::pair<int64_t, int32_t>> own, instead;
      for (const auto& [index, number] : SamplesOf(*batch, row)) {
        const int64_t position = batch->positions()[splits[row] + number];
        (index == stream[position] ? own : instead).emplace_back(index, number);
      }
      own.insert(own.end(), instead.begin(), instead.end());
      ExpectRow(*batch, row, job, own);
    }
  }
  EXPECT_EQ(wanted.size(), 24u);
  return bytes;
}

TEST_P(PackedErrors, SubstitutesFitAndAreTheSameOnAnyWorkers) {
  const auto loader = Make(OnError::kSubstitute);
  const std::string bytes = Substituted(*loader, job_);
  EXPECT_GT(loader->Metrics().substituted_samples, 10);
  EXPECT_EQ(
      loader->Metrics().substituted_samples + loader->Metrics().failed_samples,
      24);
  EXPECT_EQ(loader->Metrics().samples, 120 - loader->Metrics().failed_samples);
  job_.loader.num_workers = 0;
  EXPECT_EQ(Substituted(*Make(OnError::kSubstitute), job_), bytes);
}

// A row whose samples all fail is data, and empty.
TEST_P(PackedErrors, ARowOfWhichNothingIsReadIsEmpty) {
  const auto dataset = std::make_shared<RaggedDataset>(job_.lengths);
  dataset->before = [](int64_t) { return absl::DataLossError("torn"); };
  for (const OnError on_error : {OnError::kSkip, OnError::kSubstitute}) {
    job_.loader.on_error = on_error;
    const auto loader = MakePackedLoader(job_, dataset);
    for (absl::StatusOr<Batch>& batch : loader->Epoch(0)) {
      ASSERT_THAT(batch, IsOk());
      EXPECT_EQ(batch->valid(), batch->rows());
      EXPECT_THAT(batch->indices(), Each(-1));
      EXPECT_THAT(*batch->Values<int32_t>("tokens"), Each(0));
      EXPECT_THAT(*batch->Values<int32_t>("segment"), Each(-1));
      EXPECT_THAT(*batch->Values<double>("boxes"), Each(0));
    }
    EXPECT_EQ(loader->Metrics().samples, 0);
    EXPECT_EQ(loader->Metrics().failed_samples, 120);
    EXPECT_EQ(loader->Metrics().empty_elements,
              loader->Metrics().packed_elements);
  }
}

// Rank 1 has a row of its own, and repeats one of rank 0.
TEST_P(PackedErrors, PaddingThatFailsIsNotCounted) {
  job_.lengths = {10, 10, 10};
  job_.tail = Tail::kPad;
  job_.world = 2;
  job_.rank = 1;
  job_.loader.on_error = OnError::kSkip;
  const auto sampler = PackedSampler(job_);
  LOCKSTEP_ASSERT_OK(sampler->StartEpoch(0));
  BatchIndices planned;
  ASSERT_THAT(sampler->Next(planned), IsOkAndHolds(true));
  ASSERT_EQ(planned.indices.size(), 2u);
  EXPECT_EQ(planned.valid, 1);
  const int64_t own = planned.indices[0];
  const int64_t padding = planned.indices[1];
  for (const bool only_padding : {false, true}) {
    const auto dataset = std::make_shared<RaggedDataset>(job_.lengths);
    dataset->before = [&](int64_t index) -> absl::Status {
      if (only_padding && index != padding) return absl::OkStatus();
      return absl::DataLossError("torn");
    };
    const auto loader = MakePackedLoader(job_, dataset);
    for (absl::StatusOr<Batch>& batch : loader->Epoch(0)) {
      ASSERT_THAT(batch, IsOk());
      EXPECT_EQ(batch->valid(), 1);
      EXPECT_EQ(batch->indices()[0], only_padding ? own : -1);
      EXPECT_EQ(batch->indices()[1], -1);
    }
    EXPECT_EQ(loader->Metrics().samples, only_padding ? 1 : 0);
    EXPECT_EQ(loader->Metrics().packed_elements, 10);
    EXPECT_EQ(loader->Metrics().empty_elements, only_padding ? 0 : 10);
  }
}

// The dataset's samples may not be those by which the order packs. If one takes
// a little more room, a later one of its row may find none.
TEST_P(PackedErrors, ASampleLongerThanTheColumnSaysDoesNotOverflow) {
  for (const int64_t more : {1, 20}) {
    PackedJob actual = job_;
    for (size_t i = 0; i < actual.lengths.size(); i += 3) {
      actual.lengths[i] += more;
    }
    job_.loader.on_error = OnError::kSkip;
    const auto loader =
        MakePackedLoader(job_, std::make_shared<RaggedDataset>(actual.lengths));
    int64_t failed = 0;
    for (absl::StatusOr<Batch>& batch : loader->Epoch(0)) {
      ASSERT_THAT(batch, IsOk());
      for (const SampleError& error : batch->errors()) {
        ++failed;
        EXPECT_TRUE(more == 1 || error.index % 3 == 0);
        EXPECT_THAT(error.status,
                    StatusIs(absl::StatusCode::kInvalidArgument,
                             HasSubstr("lengths by which the order packs")));
      }
      for (int64_t row = 0; row < batch->rows(); ++row) {
        ExpectRow(*batch, row, actual, SamplesOf(*batch, row));
      }
    }
    if (more == 1) {
      EXPECT_GT(failed, 5);
    } else {
      EXPECT_EQ(failed, 40);
    }
  }
}

TEST_P(PackedErrors, FieldsOfASampleHaveTheSameLength) {
  job_.loader.on_error = OnError::kSkip;
  const auto dataset = std::make_shared<RaggedDataset>(job_.lengths);
  dataset->boxes = [this](int64_t index) {
    return job_.lengths[index] + (index == 17 ? 1 : 0);
  };
  const auto loader = MakePackedLoader(job_, dataset);
  int64_t errors = 0;
  for (absl::StatusOr<Batch>& batch : loader->Epoch(0)) {
    ASSERT_THAT(batch, IsOk());
    for (const SampleError& error : batch->errors()) {
      ++errors;
      EXPECT_EQ(error.index, 17);
      EXPECT_THAT(error.status, StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(HasSubstr("'tokens' has 9"),
                                               HasSubstr("'boxes' has 10"))));
    }
  }
  EXPECT_EQ(errors, 1);
}

}  // namespace
}  // namespace lockstep
