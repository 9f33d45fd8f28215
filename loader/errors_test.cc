// These tests read samples that fail: errors have their codes and come at their
// places, no sample is lost, and ranks take the same number of steps.
#include <cstdint>
#include <functional>
#include <future>  // NOLINT: a worker that waits
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSamples = 1000;

// A tenth of all samples fails, spread over all batches.
bool IsBad(int64_t index) { return index * 7919 % 10 == 3; }

std::shared_ptr<TestDataset> BadDataset() {
  auto dataset = std::make_shared<TestDataset>(kSamples);
  dataset->before = [](int64_t index, SampleContext&) -> absl::Status {
    if (!IsBad(index)) return absl::OkStatus();
    // The loader treats errors and exceptions in the same way.
    if (index % 2 == 0) throw std::runtime_error(absl::StrCat("torn ", index));
    return absl::DataLossError(absl::StrCat("torn ", index));
  };
  return dataset;
}

struct Outcome {
  int64_t steps = 0;  // calls of Next that gave a batch or an error
  int64_t failed_steps = 0;
  std::vector<SampleError> errors;
  std::vector<Substitution> substitutions;
  std::vector<int64_t> delivered;  // indices of data rows
  std::string bytes;
};

Outcome RunEpoch(Loader& loader) {
  Outcome run;
  LOCKSTEP_EXPECT_OK(loader.StartEpoch(0));
  Batch batch;
  while (true) {
    const absl::StatusOr<bool> more = loader.Next(batch);
    if (more.ok() && !*more) return run;
    ++run.steps;
    if (!more.ok()) {
      ++run.failed_steps;
      const auto errors = loader.errors();
      EXPECT_FALSE(errors.empty()) << more.status();
      if (errors.empty()) return run;
      EXPECT_EQ(more.status().code(), errors[0].status.code());
      EXPECT_THAT(
          more.status().message(),
          HasSubstr(absl::StrCat("epoch 0, step ", errors[0].step, ", row ",
                                 errors[0].row, ": sample ", errors[0].index,
                                 " (position ", errors[0].position, ")")));
      run.errors.insert(run.errors.end(), errors.begin(), errors.end());
      continue;
    }
    EXPECT_EQ(batch.step(), run.steps - 1);
    const auto errors = batch.errors();
    run.errors.insert(run.errors.end(), errors.begin(), errors.end());
    const auto substitutions = batch.substitutions();
    run.substitutions.insert(run.substitutions.end(), substitutions.begin(),
                             substitutions.end());
    for (const Substitution& substitution : substitutions) {
      EXPECT_EQ(batch.indices()[substitution.row], substitution.used);
    }
    const auto ids = *batch.Values<int64_t>("id");
    for (int64_t row = 0; row < batch.rows(); ++row) {
      if (row < batch.valid()) {
        EXPECT_EQ(ids[row], batch.indices()[row]);
        run.delivered.push_back(ids[row]);
      } else if (batch.indices()[row] < 0) {
        EXPECT_EQ(ids[row], 0);
        EXPECT_TRUE(batch.Row<int32_t>("tokens", row)->empty());
      }
    }
    run.bytes += BytesOf(batch);
  }
}

class ErrorsTest : public testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Loader> Make(OnError on_error, int64_t rank = 0) {
    TestJob job;
    job.size = kSamples;
    job.batch_size = 16;
    job.world = 2;
    job.rank = rank;
    job.tail = Tail::kUneven;
    LoaderOptions options;
    options.num_workers = GetParam();
    options.workers = Workers::kThreads;
    options.on_error = on_error;
    return *Loader::Create(BadDataset(), TestSampler(job), options);
  }
};

INSTANTIATE_TEST_SUITE_P(Workers, ErrorsTest, testing::Values(0, 1, 3));

// Expects each failed sample once, with its own status.
void ExpectErrors(const std::vector<SampleError>& errors,
                  const std::set<int64_t>& expected) {
  std::set<int64_t> failed;
  for (const SampleError& error : errors) {
    EXPECT_TRUE(failed.insert(error.index).second) << error.index;
    EXPECT_TRUE(IsBad(error.index)) << error.index;
    EXPECT_THAT(error.status.message(),
                HasSubstr(absl::StrCat("torn ", error.index)));
    EXPECT_EQ(error.status.code(), error.index % 2 == 0
                                       ? absl::StatusCode::kUnknown
                                       : absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(failed, expected);
}

std::set<int64_t> AllBad() {
  std::set<int64_t> bad;
  for (int64_t i = 0; i < kSamples; ++i) {
    if (IsBad(i)) bad.insert(i);
  }
  return bad;
}

TEST_P(ErrorsTest, StopFailsStepsAndGoesOn) {
  std::vector<SampleError> errors;
  int64_t accounted = 0;
  for (const int64_t rank : {0, 1}) {
    const auto loader = Make(OnError::kFail, rank);
    const Outcome run = RunEpoch(*loader);
    EXPECT_EQ(run.steps, 32);
    EXPECT_GT(run.failed_steps, 10);
    EXPECT_LT(run.failed_steps, 32);
    EXPECT_EQ(loader->progress().position, kSamples);
    for (const int64_t index : run.delivered) EXPECT_FALSE(IsBad(index));
    errors.insert(errors.end(), run.errors.begin(), run.errors.end());
    accounted += static_cast<int64_t>(run.delivered.size());
    EXPECT_EQ(loader->Metrics().failed_samples,
              static_cast<int64_t>(run.errors.size()));
    EXPECT_TRUE(loader->ok());
  }
  ExpectErrors(errors, AllBad());
  EXPECT_LT(accounted, kSamples - 100);
}

// The kind says that the step is lost, whatever the code.
TEST(Errors, ALostStepKeepsItsCode) {
  for (const absl::StatusCode code :
       {absl::StatusCode::kCancelled, absl::StatusCode::kDeadlineExceeded,
        absl::StatusCode::kFailedPrecondition, absl::StatusCode::kOutOfRange,
        absl::StatusCode::kResourceExhausted, absl::StatusCode::kUnavailable}) {
    for (const bool in_collate : {false, true}) {
      auto dataset = std::make_shared<TestDataset>(10);
      const absl::Status why(code, "of the user");
      LoaderOptions options;
      options.num_workers = 0;
      if (in_collate) {
        options.collate = [&why](BatchView&, Random&) {
          return absl::Status(why);
        };
      } else {
        dataset->before = [&why](int64_t, SampleContext&) {
          return absl::Status(why);
        };
      }
      TestJob job;
      job.size = 10;
      const auto loader = *Loader::Create(dataset, TestSampler(job), options);
      LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
      Batch batch;
      const NextResult next = loader->Next(batch);
      EXPECT_EQ(next.kind(), NextKind::kFailedStep);
      EXPECT_THAT(next, StatusIs(code, HasSubstr("of the user")));
      EXPECT_EQ(loader->errors().empty(), in_collate);
      for (const SampleError& error : loader->errors()) {
        EXPECT_EQ(error.status, why);
      }
    }
  }
}

TEST_P(ErrorsTest, SkipDeliversEveryGoodSampleOnce) {
  std::vector<SampleError> errors;
  std::set<int64_t> delivered;
  for (const int64_t rank : {0, 1}) {
    const auto loader = Make(OnError::kSkip, rank);
    const Outcome run = RunEpoch(*loader);
    EXPECT_EQ(run.steps, 32);
    EXPECT_EQ(run.failed_steps, 0);
    errors.insert(errors.end(), run.errors.begin(), run.errors.end());
    for (const int64_t index : run.delivered) {
      EXPECT_TRUE(delivered.insert(index).second) << index;
    }
    EXPECT_EQ(loader->Metrics().failed_samples,
              static_cast<int64_t>(run.errors.size()));
    EXPECT_EQ(loader->Metrics().samples,
              static_cast<int64_t>(run.delivered.size()));
  }
  ExpectErrors(errors, AllBad());
  EXPECT_EQ(delivered.size(), 900u);
}

TEST_P(ErrorsTest, SubstituteKeepsBatchesFull) {
  std::set<int64_t> wanted;
  for (const int64_t rank : {0, 1}) {
    const auto loader = Make(OnError::kSubstitute, rank);
    const Outcome run = RunEpoch(*loader);
    EXPECT_EQ(run.steps, 32);
    EXPECT_TRUE(run.errors.empty());
    EXPECT_EQ(run.delivered.size(), 500u);
    for (const Substitution& substitution : run.substitutions) {
      EXPECT_TRUE(wanted.insert(substitution.wanted).second);
      EXPECT_FALSE(IsBad(substitution.used));
      EXPECT_THAT(substitution.why.message(),
                  HasSubstr(absl::StrCat("torn ", substitution.wanted)));
    }
    EXPECT_EQ(loader->Metrics().substituted_samples,
              static_cast<int64_t>(run.substitutions.size()));
  }
  EXPECT_EQ(wanted, AllBad());
}

TEST_P(ErrorsTest, BytesDoNotDependOnWorkers) {
  for (const OnError on_error : {OnError::kSkip, OnError::kSubstitute}) {
    const std::string bytes = RunEpoch(*Make(on_error)).bytes;
    EXPECT_EQ(Sha256(bytes),
              on_error == OnError::kSkip
                  ? "90ddb5dd777593e7383fe390134df65cb34e90e1b25c3dd41f986974"
                    "796a49d2"
                  : "c0bddbb9aad831d718e0ba1289b45b02ff0c6385b13469b7c095ef31"
                    "7e4b5295");
  }
}

TEST_P(ErrorsTest, ABudgetThatRunsOutIsForGood) {
  TestJob job;
  job.size = kSamples;
  LoaderOptions options;
  options.num_workers = GetParam();
  options.workers = Workers::kThreads;
  options.on_error = OnError::kSkip;
  options.max_failures = 20;
  const auto loader = *Loader::Create(BadDataset(), TestSampler(job), options);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  int64_t failures = 0, steps = 0;
  absl::Status status;
  while (status.ok()) {
    const absl::StatusOr<bool> more = loader->Next(batch);
    status = more.status();
    if (!status.ok()) break;
    ASSERT_TRUE(*more);
    ++steps;
    failures += static_cast<int64_t>(batch.errors().size());
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("more than max_failures=20 allows")));
  EXPECT_LE(failures, 20);
  EXPECT_GT(failures, 10);
  EXPECT_FALSE(loader->ok());
  // The loader stays failed, and the batch was not given out.
  EXPECT_EQ(loader->Next(batch).status(), status);
  EXPECT_EQ(loader->StartEpoch(1), status);
  EXPECT_EQ(loader->progress().steps_taken, steps);
  LOCKSTEP_EXPECT_OK(loader->SaveState().status());
  int64_t elements = 0;
  for (auto& element : loader->Epoch(1)) {
    EXPECT_EQ(element.status(), status);
    ++elements;
  }
  EXPECT_EQ(elements, 1);
}

TEST(Errors, AsManyAsMaxFailuresAreAllowed) {
  const auto dataset = std::make_shared<TestDataset>(8);
  dataset->before = [](int64_t, SampleContext&) {
    return absl::DataLossError("torn");
  };
  TestJob job;
  job.size = 8;
  LoaderOptions options;
  options.num_workers = 0;
  options.on_error = OnError::kSkip;
  for (const int64_t allowed : {7, 8}) {
    options.max_failures = allowed;
    const auto loader = *Loader::Create(dataset, TestSampler(job), options);
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    Batch batch;
    EXPECT_EQ(loader->Next(batch).ok(), allowed == 8);
  }
}

// Returns the first batch. Without workers it is read on this thread.
Batch FirstBatch(const TestJob& job, OnError on_error,
                 const std::function<absl::Status(SampleContext&)>& before,
                 int workers = 0) {
  const auto dataset = std::make_shared<TestDataset>(job.size);
  dataset->before = [&before](int64_t, SampleContext& context) {
    return before(context);
  };
  LoaderOptions options;
  options.num_workers = workers;
  options.workers = Workers::kThreads;
  options.prefetch_next_epoch = false;
  options.on_error = on_error;
  const auto loader = *Loader::Create(dataset, TestSampler(job), options);
  Batch batch;
  LOCKSTEP_EXPECT_OK(loader->StartEpoch(0));
  EXPECT_THAT(loader->Next(batch), IsOkAndHolds(true));
  return batch;
}

TEST(Errors, AFailedRowOfPaddingIsNoDataLess) {
  TestJob job;
  job.size = 7;
  job.batch_size = 4;
  job.world = 2;
  job.rank = 1;
  const Batch batch =
      FirstBatch(job, OnError::kSkip, [](SampleContext& context) {
        return context.position() >= 7 ? absl::DataLossError("torn")
                                       : absl::OkStatus();
      });
  EXPECT_EQ(batch.valid(), 3);
  ASSERT_EQ(batch.errors().size(), 1u);
  EXPECT_EQ(batch.errors()[0].row, 3);
  EXPECT_EQ(batch.indices()[3], -1);
}

TEST(Errors, AreInTheOrderOfTheirRows) {
  TestJob job;
  job.size = 4;
  job.batch_size = 4;
  std::promise<void> others_are_read;
  const auto fail_row_0_last = [&](SampleContext& context) {
    const int64_t row = context.position();
    if (row == 0) others_are_read.get_future().wait();
    if (row == 3) others_are_read.set_value();
    return row % 2 == 0 ? absl::DataLossError("torn") : absl::OkStatus();
  };
  const Batch batch =
      FirstBatch(job, OnError::kSkip, fail_row_0_last, /*workers=*/2);
  EXPECT_THAT(batch.positions(), ElementsAre(1, 3, -1, -1));
  ASSERT_EQ(batch.errors().size(), 2u);
  EXPECT_EQ(batch.errors()[0].row, 0);
  EXPECT_EQ(batch.errors()[1].row, 2);
}

TEST(Errors, SubstitutionsMoveWithTheirRows) {
  TestJob job;
  job.size = 4;
  job.batch_size = 4;
  bool row_1_was_read = false;
  const Batch batch =
      FirstBatch(job, OnError::kSubstitute, [&](SampleContext& context) {
        const bool fails =
            context.position() == 0 ||
            (context.position() == 1 && !std::exchange(row_1_was_read, true));
        return fails ? absl::DataLossError("torn") : absl::OkStatus();
      });
  EXPECT_EQ(batch.valid(), 3);
  EXPECT_EQ(batch.errors().size(), 1u);
  ASSERT_EQ(batch.substitutions().size(), 1u);
  EXPECT_EQ(batch.substitutions()[0].row, 0);
  EXPECT_EQ(batch.substitutions()[0].used, batch.indices()[0]);
  EXPECT_EQ(batch.positions()[0], 1);
}

TEST_P(ErrorsTest, WhatCanNotBeSubstitutedIsSkipped) {
  const auto dataset = std::make_shared<TestDataset>(10);
  dataset->before = [](int64_t, SampleContext&) {
    return absl::UnavailableError("the disk is gone");
  };
  TestJob job;
  job.size = 10;
  job.batch_size = 4;
  LoaderOptions options;
  options.num_workers = GetParam();
  options.workers = Workers::kThreads;
  options.on_error = OnError::kSubstitute;
  const auto loader = *Loader::Create(dataset, TestSampler(job), options);
  int64_t steps = 0;
  for (auto& batch : loader->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch.status());
    EXPECT_EQ(batch->valid(), 0);
    EXPECT_EQ(static_cast<int64_t>(batch->errors().size()), batch->rows());
    ++steps;
  }
  EXPECT_EQ(steps, 3);
}

// If a bulk read fails, the loader calls Read for each sample.
TEST_P(ErrorsTest, BulkReadsFindTheSampleThatFails) {
  class Bulk : public TestDataset {
   public:
    using TestDataset::TestDataset;
    int64_t max_bulk() const override { return 5; }
  };
  const auto dataset = std::make_shared<Bulk>(kSamples);
  dataset->before = BadDataset()->before;
  TestJob job;
  job.size = kSamples;
  job.batch_size = 16;
  job.world = 2;
  job.tail = Tail::kUneven;
  LoaderOptions options;
  options.num_workers = GetParam();
  options.workers = Workers::kThreads;
  options.on_error = OnError::kSkip;
  const auto loader = *Loader::Create(dataset, TestSampler(job), options);
  EXPECT_EQ(RunEpoch(*loader).bytes, RunEpoch(*Make(OnError::kSkip)).bytes);
}

TEST_P(ErrorsTest, WhatABulkReadLeavesUnwrittenIsReadAgain) {
  class Forgetful : public TestDataset {
   public:
    using TestDataset::TestDataset;
    int64_t max_bulk() const override { return 5; }
    absl::Status ReadMany(absl::Span<const int64_t> indices,
                          absl::Span<SampleContext> contexts,
                          absl::Span<SampleRow> rows) override {
      rows[0].Set<int64_t>(0, -1).IgnoreError();  // one field of three
      return TestDataset::ReadMany(indices.subspan(1), contexts.subspan(1),
                                   rows.subspan(1));
    }
  };
  const TestJob job;
  LoaderOptions options;
  options.num_workers = GetParam();
  options.workers = Workers::kThreads;
  const auto whole = *Loader::Create(std::make_shared<TestDataset>(job.size),
                                     TestSampler(job), options);
  const auto loader = *Loader::Create(std::make_shared<Forgetful>(job.size),
                                      TestSampler(job), options);
  EXPECT_EQ(DigestOfEpoch(*loader, 0), DigestOfEpoch(*whole, 0));
}

}  // namespace
}  // namespace lockstep
