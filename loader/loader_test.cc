#include "lockstep/loader/loader.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>  // NOLINT: batches released elsewhere
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/testing.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<Loader> Make(const TestJob& job, const LoaderOptions& options,
                             std::shared_ptr<Dataset> dataset = nullptr) {
  if (dataset == nullptr) dataset = std::make_shared<TestDataset>(job.size);
  auto loader = Loader::Create(dataset, TestSampler(job), options);
  EXPECT_TRUE(loader.ok()) << loader.status();
  return std::move(loader).value();
}

std::vector<int64_t> IdsOf(const Batch& batch) {
  const auto ids = *batch.Values<int64_t>("id");
  return {ids.begin(), ids.end()};
}

// A gate: no sample is read until it is opened.
class Barrier {
 public:
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(mutex_);
    while (!open_) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ = false;
};

// Each test runs without workers, with threads and with TBB.
struct Mode {
  const char* name;
  int num_workers;
  Workers workers;
};

class LoaderTest : public testing::TestWithParam<Mode> {
 protected:
  LoaderTest() {
    options_.num_workers = GetParam().num_workers;
    options_.workers = GetParam().workers;
  }
  bool has_workers() const { return GetParam().num_workers > 0; }

  LoaderOptions options_;
};

INSTANTIATE_TEST_SUITE_P(, LoaderTest,
                         testing::Values(Mode{"None", 0, Workers::kTbb},
                                         Mode{"OneThread", 1,
                                              Workers::kThreads},
                                         Mode{"Threads", 3, Workers::kThreads},
                                         Mode{"Tbb", 3, Workers::kTbb}),
                         [](const auto& info) { return info.param.name; });

TEST_P(LoaderTest, GivesTheSamplersStepsInOrder) {
  const TestJob job;
  const auto loader = Make(job, options_);
  const auto sampler = TestSampler(job);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(epoch));
    LOCKSTEP_ASSERT_OK(sampler->StartEpoch(epoch));
    BatchIndices expected;
    Batch batch;
    while (*sampler->Next(expected)) {
      EXPECT_THAT(loader->Next(batch), IsOkAndHolds(true));
      EXPECT_EQ(batch.indices(), expected.indices);
      EXPECT_EQ(batch.positions(), expected.positions);
      EXPECT_EQ(batch.valid(), expected.valid);
      EXPECT_EQ(batch.epoch(), epoch);
      EXPECT_EQ(batch.step(), expected.step);
      EXPECT_EQ(IdsOf(batch), std::vector<int64_t>(expected.indices.begin(),
                                                   expected.indices.end()));
      EXPECT_EQ(loader->progress().position, expected.progress.position);
    }
    EXPECT_THAT(loader->Next(batch), IsOkAndHolds(false));
    EXPECT_TRUE(batch.empty());
    EXPECT_EQ(loader->progress().steps_in_total,
              sampler->progress().steps_in_total);
  }
}

TEST_P(LoaderTest, SaysWhatIsMissingBeforeAndAfterAnEpoch) {
  const auto loader = Make({}, options_);
  Batch batch;
  EXPECT_THAT(loader->Next(batch),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("before the first StartEpoch(epoch)")));
  EXPECT_THAT(loader->SaveState(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(4));
  while (*loader->Next(batch)) {
  }
  EXPECT_THAT(loader->Next(batch),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr("epoch 4 is over, as Next has said: call "
                                 "StartEpoch(5)")));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(5));
  EXPECT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(batch.epoch(), 5);
}

TEST_P(LoaderTest, StartsAnyEpochAtAnyTime) {
  const TestJob job;
  const auto loader = Make(job, options_);
  LoaderOptions alone;
  alone.num_workers = 0;
  const auto reference = Make(job, alone);
  Batch batch;
  for (const int64_t epoch : {0, 0, 1, 7, 2, 3, 3, 0}) {
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(epoch));
    for (int step = 0; step < 5; ++step) ASSERT_TRUE(*loader->Next(batch));
    EXPECT_EQ(DigestOfEpoch(*loader, epoch), DigestOfEpoch(*reference, epoch));
  }
}

TEST_P(LoaderTest, CountsStepsOverAbandonedEpochs) {
  const auto loader = Make({}, options_);
  Batch batch;
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(*loader->Next(batch));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(9));
  ASSERT_TRUE(*loader->Next(batch));
  // Batches that were read ahead and dropped are not counted.
  EXPECT_EQ(loader->progress().steps_in_total, 4);
  EXPECT_EQ(loader->progress().steps_taken, 1);
}

TEST_P(LoaderTest, AdvancesByItself) {
  TestJob job;
  job.size = 20;
  options_.advance_epochs = true;
  options_.max_steps = 8;
  const auto loader = Make(job, options_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(2));
  std::vector<int64_t> epochs;
  Batch batch;
  while (*loader->Next(batch)) epochs.push_back(batch.epoch());
  EXPECT_THAT(epochs, ElementsAre(2, 2, 2, 3, 3, 3, 4, 4));
  EXPECT_THAT(loader->Next(batch),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr("past its end: max_steps=8")));
}

TEST_P(LoaderTest, RangesOverAnEpoch) {
  const auto loader = Make({}, options_);
  int64_t rows = 0;
  for (absl::StatusOr<Batch>& batch : loader->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch.status());
    rows += batch->valid();
  }
  EXPECT_EQ(rows, TestJob().size);
}

// A loop that keeps all batches that it gets, and goes on after errors.
TEST_P(LoaderTest, ARangeEndsWhereAllBatchesAreHeld) {
  options_.prefetch_batches = 2;
  const auto loader = Make({}, options_);
  std::vector<Batch> held;
  int64_t steps = 0;
  int64_t ranges = 0;
  // A loop that releases its batches goes on, and loses no step.
  while (!loader->over()) {
    held.clear();
    ASSERT_LT(++ranges, 10);
    EpochRange range = loader->Epoch(0);
    for (absl::StatusOr<Batch>& batch : range) {
      if (batch.ok()) {
        EXPECT_EQ(batch->step(), steps++);
        held.push_back(*std::move(batch));
      } else {
        EXPECT_THAT(batch.status(),
                    StatusIs(absl::StatusCode::kResourceExhausted));
        EXPECT_EQ(range.kind(), NextKind::kTryAgain);
      }
    }
    EXPECT_LE(held.size(), 3u);
    loader->KeepPlace();
  }
  EXPECT_EQ(steps, 13);
  EXPECT_EQ(ranges, 5);
}

TEST_P(LoaderTest, ARangeEndsAtALostStep) {
  const TestJob job;
  const auto dataset = std::make_shared<TestDataset>(job.size);
  dataset->before = [](int64_t, SampleContext& context) {
    const int64_t step = context.position() / 8;
    return step == 4 || step == 5 || step == 12 ? absl::DataLossError("torn")
                                                : absl::OkStatus();
  };
  const auto loader = Make(job, options_, dataset);
  for (const int64_t epoch : {0, 1}) {
    std::string ends;
    int64_t steps = 0;
    do {
      EpochRange range = loader->Epoch(epoch);
      for (absl::StatusOr<Batch>& batch : range) {
        EXPECT_TRUE(!batch.ok() || batch->step() == steps);
        ++steps;
      }
      const NextKind kind = range.kind();
      ASSERT_TRUE(kind == NextKind::kFailedStep || kind == NextKind::kEnd);
      absl::StrAppend(&ends, steps, " ");
      loader->KeepPlace();
    } while (!loader->over());
    EXPECT_EQ(steps, 13);
    EXPECT_EQ(ends, "5 6 13 13 ");
  }
}

TEST_P(LoaderTest, NegativeEpochsAreRefused) {
  const auto loader = Make({}, options_);
  EXPECT_THAT(
      loader->StartEpoch(-1),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("epoch=-1")));
  LOCKSTEP_EXPECT_OK(loader->StartEpoch(0));
  Batch batch;
  EXPECT_THAT(loader->Next(batch), IsOkAndHolds(true));
}

TEST_P(LoaderTest, TryNextComesToTheSame) {
  const TestJob job;
  const auto loader = Make(job, options_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  int64_t steps = 0;
  while (true) {
    const NextResult next = loader->TryNext(batch);
    if (next.kind() == NextKind::kEnd) break;
    if (next.kind() == NextKind::kBatch) {
      EXPECT_EQ(batch.step(), steps++);
    } else {
      ASSERT_EQ(next.kind(), NextKind::kTryAgain);
      EXPECT_THAT(next, StatusIs(absl::StatusCode::kUnavailable));
      EXPECT_TRUE(batch.empty());
    }
  }
  EXPECT_EQ(steps, 13);
}

TEST_P(LoaderTest, SaysThatTheCallerHoldsEveryBatch) {
  options_.prefetch_batches = 2;
  const auto loader = Make({}, options_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  std::vector<Batch> held(3);
  for (Batch& batch : held) ASSERT_TRUE(*loader->Next(batch));
  Batch next;
  const NextResult refused = loader->Next(next);
  EXPECT_EQ(refused.kind(), NextKind::kTryAgain);
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("all 3 batches of the loader are held")));
  EXPECT_TRUE(loader->ok());
  held[1].Release();
  EXPECT_THAT(loader->Next(next), IsOkAndHolds(true));
  EXPECT_EQ(next.step(), 3);
  // Next releases the batch in its argument before it looks for another.
  EXPECT_THAT(loader->Next(held[0]), IsOkAndHolds(true));
  EXPECT_EQ(held[0].step(), 4);
}

TEST_P(LoaderTest, BatchesOutliveTheLoader) {
  Batch batch;
  std::string before;
  {
    const auto loader = Make({}, options_);
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    ASSERT_TRUE(*loader->Next(batch));
    before = BytesOf(batch);
  }
  EXPECT_EQ(BytesOf(batch), before);
  Batch moved = std::move(batch);
  EXPECT_EQ(BytesOf(moved), before);
  std::thread([&moved] { moved.Release(); }).join();
  EXPECT_TRUE(moved.empty());
}

TEST_P(LoaderTest, BatchesHeldOverARestartStayAsTheyAre) {
  options_.prefetch_batches = 3;
  const auto loader = Make({}, options_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch held, other;
  ASSERT_TRUE(*loader->Next(held));
  const std::string before = BytesOf(held);
  for (int64_t epoch = 1; epoch < 20; ++epoch) {
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(epoch * 2));
    for (int step = 0; step < 4; ++step) ASSERT_TRUE(*loader->Next(other));
  }
  EXPECT_EQ(BytesOf(held), before);
}

TEST_P(LoaderTest, BatchesMayBeReleasedOnOtherThreads) {
  const auto loader = Make({}, options_);
  for (int64_t epoch = 0; epoch < 30; ++epoch) {
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(epoch));
    while (true) {
      Batch batch;
      const absl::StatusOr<bool> more = loader->Next(batch);
      // A thread that releases them slowly may still hold all of them.
      if (absl::IsResourceExhausted(more.status())) continue;
      LOCKSTEP_ASSERT_OK(more.status());
      if (!*more) break;
      std::thread([](Batch) {}, std::move(batch)).detach();
    }
  }
}

TEST_P(LoaderTest, DrainsToAPrefix) {
  options_.delivery = Delivery::kAsReady;
  TestJob job;
  job.size = 400;
  const auto loader = Make(job, options_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  std::multiset<int64_t> steps;
  Batch batch;
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(*loader->Next(batch));
    steps.insert(batch.step());
  }
  loader->Drain();
  while (*loader->Next(batch)) steps.insert(batch.step());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string state, loader->SaveState());
  const int64_t given = static_cast<int64_t>(steps.size());
  EXPECT_EQ(loader->progress().steps_taken, given);
  // The same loader goes on, and so does another one from the state.
  const auto restored = Make(job, options_);
  LOCKSTEP_ASSERT_OK(restored->RestoreState(state));
  std::multiset<int64_t> others = steps;
  while (*loader->Next(batch)) steps.insert(batch.step());
  while (*restored->Next(batch)) others.insert(batch.step());
  std::multiset<int64_t> all;
  for (int64_t step = 0; step < 50; ++step) all.insert(step);
  EXPECT_EQ(steps, all);
  EXPECT_EQ(others, all);
}

// The end of the epoch may have been planned by then, or not.
TEST_P(LoaderTest, ADrainAtTheEpochsEndIsSaidBeforeTheEnd) {
  TestJob job;
  job.size = 3 * job.batch_size;
  for (int round = 0; round < 50; ++round) {
    const auto loader = Make(job, options_);
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    Batch batch;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(*loader->Next(batch));
    loader->Drain();
    ASSERT_THAT(loader->Next(batch), IsOkAndHolds(false));  // it is drained
    EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(0));
    if (round % 2 == 0) {
      ASSERT_THAT(loader->Next(batch), IsOkAndHolds(false));  // it is over
      ASSERT_THAT(loader->Next(batch), StatusIs(absl::StatusCode::kOutOfRange));
    } else {
      for (auto& each : loader->Epoch(0)) FAIL() << each.status();
    }
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(1));
    ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  }
}

TEST_P(LoaderTest, OutOfOrderBatchesAreTheSameOnes) {
  TestJob job;
  job.size = 500;
  options_.seed = 3;
  const auto in_order = Make(job, options_);
  options_.delivery = Delivery::kAsReady;
  const auto as_ready = Make(job, options_);
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    std::set<std::string> expected, got;
    for (auto& batch : in_order->Epoch(epoch)) expected.insert(BytesOf(*batch));
    for (auto& batch : as_ready->Epoch(epoch)) {
      // No batch comes before the end of the previous epoch.
      EXPECT_EQ(batch->epoch(), epoch);
      got.insert(BytesOf(*batch));
    }
    EXPECT_EQ(got, expected);
  }
}

TEST_P(LoaderTest, EmptyBatchesAreSteps) {
  TestJob job;
  job.size = 9;
  job.batch_size = 4;
  job.world = 2;
  job.rank = 1;
  job.tail = Tail::kUneven;
  const auto loader = Make(job, options_);
  std::vector<int64_t> rows;
  for (auto& batch : loader->Epoch(0)) rows.push_back(batch->rows());
  EXPECT_THAT(rows, ElementsAre(4, 0));
}

TEST_P(LoaderTest, NoSamplesAreNoSteps) {
  TestJob job;
  job.size = 0;
  const auto loader = Make(job, options_);
  Batch batch;
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(epoch));
    EXPECT_THAT(loader->Next(batch), IsOkAndHolds(false));
  }
  options_.advance_epochs = true;
  const auto endless = Make(job, options_);
  LOCKSTEP_ASSERT_OK(endless->StartEpoch(0));
  EXPECT_THAT(endless->Next(batch),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("1000 epochs in a row")));
}

TEST_P(LoaderTest, SkipsPositions) {
  const auto loader = Make({}, options_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_TRUE(*loader->Next(batch));
  EXPECT_THAT(loader->Skip(0, 20), StatusIs(absl::StatusCode::kOutOfRange));
  LOCKSTEP_ASSERT_OK(loader->Skip(8, 100));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string state, loader->SaveState());
  ASSERT_TRUE(*loader->Next(batch));
  EXPECT_THAT(batch.positions().first(batch.valid()),
              ElementsAre(100, 101, 102));
  EXPECT_THAT(loader->Next(batch), IsOkAndHolds(false));
  // Skipped ranges are part of the state, and belong to this epoch only.
  LOCKSTEP_ASSERT_OK(loader->RestoreState(state));
  ASSERT_TRUE(*loader->Next(batch));
  EXPECT_EQ(batch.positions()[0], 100);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(1));
  for (int step = 0; step < 2; ++step) ASSERT_TRUE(*loader->Next(batch));
  EXPECT_EQ(batch.positions()[0], 8);
}

TEST_P(LoaderTest, WhatIsSkippedIsNotSkippedAgain) {
  const auto loader = Make({}, options_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(3));
  LOCKSTEP_ASSERT_OK(loader->Skip(8, 100));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(3));
  Batch batch;
  ASSERT_TRUE(*loader->Next(batch));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string state, loader->SaveState());
  EXPECT_EQ(state.size(), 168u);
  LOCKSTEP_ASSERT_OK(loader->RestoreState(state));
  ASSERT_TRUE(*loader->Next(batch));
  EXPECT_EQ(batch.positions()[0], 8);
}

TEST_P(LoaderTest, SkippingGoesOnDraining) {
  options_.prefetch_batches = 3;  // so the epoch is not planned before Drain
  const auto loader = Make({}, options_);
  EXPECT_THAT(loader->Skip(0, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("Skip before the first StartEpoch")));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_TRUE(*loader->Next(batch));
  loader->Drain();
  LOCKSTEP_ASSERT_OK(loader->Skip(50, 60));
  int64_t steps = 1;
  while (*loader->Next(batch)) ++steps;
  EXPECT_LT(steps, 12);
}

TEST_P(LoaderTest, LongTimeoutsAreLong) {
  options_.timeout = absl::Hours(24 * 365 * 1000);
  const auto loader = Make({}, options_);
  EXPECT_NE(DigestOfEpoch(*loader, 0), "");
}

TEST_P(LoaderTest, LargeBatchesOfFewSamples) {
  TestJob job;
  job.size = 1;
  job.batch_size = 1 << 24;
  job.world = 2;
  job.rank = 1;
  job.tail = Tail::kUneven;
  class NoFields : public Dataset {
   public:
    int64_t size() const override { return 1; }
    absl::Span<const FieldSpec> fields() const override { return {}; }
    absl::Status Read(int64_t, SampleContext&, SampleRow&) override {
      return absl::OkStatus();
    }
  };
  options_.prefetch_batches = 1;
  const auto loader = Make(job, options_, std::make_shared<NoFields>());
  Batch batch;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(epoch));
    ASSERT_TRUE(*loader->Next(batch));
    EXPECT_EQ(batch.rows(), 0);
    EXPECT_THAT(loader->Next(batch), IsOkAndHolds(false));
  }
}

TEST_P(LoaderTest, TheLastEpochHasNoNext) {
  const auto loader = Make({}, options_);
  const int64_t last = kMostCounted;
  EXPECT_NE(DigestOfEpoch(*loader, last), "");
  Batch batch;
  EXPECT_THAT(loader->Next(batch), StatusIs(absl::StatusCode::kOutOfRange));
  LOCKSTEP_EXPECT_OK(loader->StartEpoch(last));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string state, loader->SaveState());
  LOCKSTEP_EXPECT_OK(loader->RestoreState(state));
  EXPECT_THAT(loader->StartEpoch(last + 1),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_P(LoaderTest, ProgressKnowsTheEpochAfterARestore) {
  TestJob job;
  job.size = 80;
  LoaderProgress report;
  options_.progress = [&](const LoaderProgress& progress) {
    report = progress;
  };
  options_.progress_interval = absl::ZeroDuration();
  std::string state;
  {
    const auto loader = Make(job, options_);
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    Batch batch;
    for (int step = 0; step < 3; ++step) ASSERT_TRUE(*loader->Next(batch));
    EXPECT_EQ(report.steps_in_epoch, 10);
    state = *loader->SaveState();
  }
  const auto loader = Make(job, options_);
  LOCKSTEP_ASSERT_OK(loader->RestoreState(state));
  Batch batch;
  for (int step = 0; step < 2; ++step) ASSERT_TRUE(*loader->Next(batch));
  EXPECT_EQ(report.steps, 5);
  EXPECT_EQ(report.steps_in_epoch, 10);
}

TEST_P(LoaderTest, HintsTellWhatWillBeRead) {
  class Hinted : public TestDataset {
   public:
    using TestDataset::TestDataset;
    void Hint(absl::Span<const int64_t> indices) override {
      MutexLock lock(mutex);
      hinted.insert(indices.begin(), indices.end());
      throw 1;  // is nobody's harm
    }
    Mutex mutex;
    std::set<int64_t> hinted;
  };
  const auto dataset = std::make_shared<Hinted>(103);
  dataset->before = [&](int64_t index, SampleContext&) {
    MutexLock lock(dataset->mutex);
    return dataset->hinted.count(index) == 1
               ? absl::OkStatus()
               : absl::InternalError("there was no hint");
  };
  const auto loader = Make({}, options_, dataset);
  DigestOfEpoch(*loader, 0);
  MutexLock lock(dataset->mutex);
  EXPECT_EQ(dataset->hinted.size(), 103u);
}

class WorkersTest : public LoaderTest {};

INSTANTIATE_TEST_SUITE_P(, WorkersTest,
                         testing::Values(Mode{"Threads", 2, Workers::kThreads},
                                         Mode{"Tbb", 2, Workers::kTbb}),
                         [](const auto& info) { return info.param.name; });

TEST_P(WorkersTest, TimeoutTellsWhatTheWorkersAreAt) {
  const auto dataset = std::make_shared<TestDataset>(103);
  Barrier barrier;
  std::atomic<bool> waits{false};
  dataset->before = [&](int64_t index, SampleContext&) {
    if (index == 17) {
      waits = true;
      barrier.Wait();
    }
    return absl::OkStatus();
  };
  options_.timeout = absl::Milliseconds(20);
  const auto loader = Make({}, options_, dataset);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  int64_t steps = 0;
  bool late = false;
  while (true) {
    const bool waited = waits;
    const absl::StatusOr<bool> more = loader->Next(batch);
    if (absl::IsDeadlineExceeded(more.status())) {
      // A slow machine may be late before sample 17 and after it, too.
      if (waited && !late) {
        EXPECT_THAT(more.status().message(),
                    AllOf(HasSubstr("rows are not read yet"),
                          HasSubstr("reads sample 17 for")));
        late = true;
        barrier.Open();
      }
      continue;
    }
    LOCKSTEP_ASSERT_OK(more.status());
    if (!*more) break;
    EXPECT_EQ(batch.step(), steps++);
  }
  EXPECT_TRUE(late);
  EXPECT_EQ(steps, 13);
}

TEST_P(WorkersTest, ASlowSampleDoesNotKeepOthersFromBeingRead) {
  const auto dataset = std::make_shared<TestDataset>(64);
  Barrier barrier;
  std::atomic<int> others{0};
  dataset->before = [&](int64_t, SampleContext& context) {
    // The first sample of the stream ends when all others have.
    if (context.position() == 0) {
      barrier.Wait();
    } else if (++others == 63) {
      barrier.Open();
    }
    return absl::OkStatus();
  };
  options_.prefetch_batches = 8;
  options_.prefetch_next_epoch = false;
  TestJob job;
  job.size = 64;
  const auto loader = Make(job, options_, dataset);
  int64_t steps = 0;
  for (auto& batch : loader->Epoch(0)) EXPECT_EQ(batch->step(), steps++);
  EXPECT_EQ(steps, 8);
}

TEST_P(WorkersTest, OutOfOrderASlowBatchComesLast) {
  const auto dataset = std::make_shared<TestDataset>(64);
  Barrier barrier;
  dataset->before = [&](int64_t, SampleContext& context) {
    if (context.position() == 0) barrier.Wait();
    return absl::OkStatus();
  };
  options_.delivery = Delivery::kAsReady;
  options_.prefetch_batches = 3;
  TestJob job;
  job.size = 64;
  const auto loader = Make(job, options_, dataset);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(*loader->Next(batch));
    EXPECT_NE(batch.step(), 0);
    EXPECT_THAT(loader->SaveState(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("call Drain")));
  }
  barrier.Open();
  ASSERT_TRUE(*loader->Next(batch));
  EXPECT_EQ(batch.step(), 0);
  LOCKSTEP_EXPECT_OK(loader->SaveState().status());
  EXPECT_THAT(loader->Next(batch), IsOkAndHolds(false));
}

TEST_P(WorkersTest, OutOfOrderTheEndComesAfterASlowBatch) {
  const auto dataset = std::make_shared<TestDataset>(32);
  Barrier barrier, end_is_ready;
  // One worker waits, so the other one has come to the end when it reads on.
  dataset->before = [&](int64_t, SampleContext& context) {
    if (context.epoch() == 1) {
      end_is_ready.Open();
    } else if (context.position() == 0) {
      barrier.Wait();
    }
    return absl::OkStatus();
  };
  options_.delivery = Delivery::kAsReady;
  TestJob job;
  job.size = 32;
  const auto loader = Make(job, options_, dataset);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(*loader->Next(batch));
  end_is_ready.Wait();
  EXPECT_THAT(loader->TryNext(batch), StatusIs(absl::StatusCode::kUnavailable));
  barrier.Open();
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(batch.step(), 0);
  EXPECT_THAT(loader->Next(batch), IsOkAndHolds(false));
}

TEST_P(WorkersTest, OutOfOrderBatchesHeldOverARestartStayAsTheyAre) {
  const auto dataset = std::make_shared<TestDataset>(64);
  Barrier barrier;
  dataset->before = [&](int64_t, SampleContext& context) {
    if (context.position() == 0) barrier.Wait();
    return absl::OkStatus();
  };
  options_.delivery = Delivery::kAsReady;
  TestJob job;
  job.size = 64;
  const auto loader = Make(job, options_, dataset);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch held, other;
  ASSERT_TRUE(*loader->Next(held));
  EXPECT_NE(held.step(), 0);
  const std::string before = BytesOf(held);
  barrier.Open();
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(7));
  for (int step = 0; step < 8; ++step) ASSERT_TRUE(*loader->Next(other));
  EXPECT_EQ(BytesOf(held), before);
}

TEST_P(WorkersTest, PrefetchesOverTheEndOfAnEpoch) {
  const auto dataset = std::make_shared<TestDataset>(32);
  Barrier next_epoch_is_read;
  dataset->before = [&](int64_t, SampleContext& context) {
    if (context.epoch() == 1) next_epoch_is_read.Open();
    return absl::OkStatus();
  };
  TestJob job;
  job.size = 32;
  const auto loader = Make(job, options_, dataset);
  Batch batch;
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  while (*loader->Next(batch)) {
  }
  next_epoch_is_read.Wait();
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(1));
  ASSERT_TRUE(*loader->Next(batch));
  EXPECT_EQ(batch.epoch(), 1);
}

TEST_P(WorkersTest, StartEpochBeginsToRead) {
  const auto dataset = std::make_shared<TestDataset>(103);
  Barrier read;
  dataset->before = [&](int64_t, SampleContext&) {
    read.Open();
    return absl::OkStatus();
  };
  const auto loader = Make({}, options_, dataset);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  read.Wait();
}

TEST_P(WorkersTest, ReadsAheadAsFarAsIsAllowed) {
  std::atomic<int64_t> most{0};
  const auto dataset = std::make_shared<TestDataset>(400);
  dataset->before = [&](int64_t, SampleContext& context) {
    int64_t known = most;
    while (context.position() > known &&
           !most.compare_exchange_weak(known, context.position())) {
    }
    return absl::OkStatus();
  };
  TestJob job;
  job.size = 400;
  options_.prefetch_batches = 100;
  // A row has 8 + 16 + 24 bytes, and there are 9 splits; all begin at multiples
  // of 64. The loader notes 2 numbers and a shape of each row.
  options_.prefetch_bytes = 3 * (64 + 128 + 192 + 128 + 8 * (16 + 64));
  const auto loader = Make(job, options_, dataset);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  for (int64_t step = 0; step < 50; ++step) {
    ASSERT_TRUE(*loader->Next(batch));
    EXPECT_LT(most, (step + 3) * 8);
  }
}

// A dataset whose rows are a few numbers or one long tensor.
class SizedDataset : public Dataset {
 public:
  explicit SizedDataset(std::vector<FieldSpec> fields)
      : fields_(std::move(fields)) {}
  int64_t size() const override { return 1000; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t, SampleContext&, SampleRow& row) override {
    for (int field = 0; field < row.fields(); ++field) {
      LOCKSTEP_RETURN_IF_ERROR(fields_[field].ragged()
                                   ? row.MutableRaggedBytes(field, {1}).status()
                                   : row.MutableBytes(field).status());
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<FieldSpec> fields_;
};

// Returns how many batches of 4 samples can be held at one time.
int64_t CountBatches(std::vector<FieldSpec> fields, int64_t prefetch_bytes) {
  LoaderOptions options;
  options.num_workers = 0;
  options.prefetch_batches = 4000;
  options.prefetch_bytes = prefetch_bytes;
  TestJob job;
  job.size = 1000;
  job.batch_size = 4;
  const auto loader =
      Make(job, options, std::make_shared<SizedDataset>(std::move(fields)));
  LOCKSTEP_EXPECT_OK(loader->StartEpoch(0));
  std::vector<Batch> held;
  while (true) {
    held.emplace_back();
    const auto more = loader->Next(held.back());
    if (!more.ok() || !*more) return static_cast<int64_t>(held.size()) - 1;
  }
}

TEST(Loader, PrefetchBytesCountAllThatBatchesTake) {
  // 64 bytes more than a huge page need two of them.
  EXPECT_EQ(CountBatches({{"x", DType::kU8, {(1 << 19) + 16}}}, 32 << 20), 7);
  EXPECT_EQ(CountBatches({{"x", DType::kU8, {1 << 19}}}, 32 << 20), 15);
  // 8 fields of 4 bytes, in 64 each, their 5 splits, in 64 each; 4 rows have 2
  // numbers and 8 shapes of 64 bytes.
  std::vector<FieldSpec> ragged;
  for (int i = 0; i < 8; ++i) {
    ragged.push_back({absl::StrCat("r", i), DType::kU8, {-1}, 1});
  }
  EXPECT_EQ(CountBatches(ragged, 100 * (8 * (64 + 64) + 4 * (16 + 8 * 64))),
            100);
}

TEST(Loader, RefusesWhatMakesNoSense) {
  const auto dataset = std::make_shared<TestDataset>(103);
  const auto refused = [&](const LoaderOptions& options) {
    return Loader::Create(dataset, TestSampler({}), options).status();
  };
  LoaderOptions options;
  options.num_workers = -1;
  EXPECT_THAT(refused(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "num_workers should be 0 (no workers) to 4096, but got "
                       "num_workers=-1"));
  options = {};
  options.prefetch_batches = 0;
  EXPECT_THAT(refused(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("prefetch_batches=0")));
  options = {};
  options.prefetch_bytes = 700;
  EXPECT_THAT(refused(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("prefetch_bytes should be 2304 or more, but "
                                 "got prefetch_bytes=700")));
  options = {};
  options.timeout = absl::ZeroDuration();
  EXPECT_THAT(refused(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("timeout=0")));
  options = {};
  options.max_failures = -3;
  EXPECT_THAT(refused(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("max_failures=-3")));
  EXPECT_THAT(
      Loader::Create(nullptr, TestSampler({})),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no dataset")));
  EXPECT_THAT(
      Loader::Create(dataset, nullptr),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no sampler")));
  TestJob other;
  other.size = 104;
  EXPECT_THAT(Loader::Create(dataset, TestSampler(other)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("over 104 samples, and the dataset has 103")));
}

TEST(Loader, RefusesFieldsThatChange) {
  class Changing : public TestDataset {
   public:
    using TestDataset::TestDataset;
    absl::Span<const FieldSpec> fields() const override {
      return changed ? other : TestDataset::fields();
    }
    bool changed = false;
    const std::vector<FieldSpec> other = {{"id", DType::kI64, {2}, 0},
                                          {"x", DType::kF32, {2, 2}, 0},
                                          {"tokens", DType::kI32, {-1}, 6}};
  };
  const auto dataset = std::make_shared<Changing>(103);
  LoaderOptions options;
  options.num_workers = 1;
  options.workers = Workers::kThreads;
  const auto loader = Make({}, options, dataset);
  DigestOfEpoch(*loader, 0);
  dataset->changed = true;
  EXPECT_THAT(loader->StartEpoch(1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("field was id i64[] when the loader was made, "
                                 "and now is id i64[2]")));
}

TEST(Loader, OrdersThatFailAreToldAtTheirPlace) {
  // Epochs 0 and 1 are there, epoch 2 can't be opened, epoch 3 not be read.
  class Failing : public Order {
   public:
    class Stream : public IndexStream {
     public:
      explicit Stream(bool fails) : fails_(fails) {}
      int64_t size() const override { return 8; }
      absl::Status Read(int64_t first, int64_t stride,
                        absl::Span<int64_t> out) override {
        if (fails_ && first >= 4) return absl::DataLossError("torn list");
        for (size_t i = 0; i < out.size(); ++i) out[i] = first + i * stride;
        return absl::OkStatus();
      }
      const bool fails_;
    };
    absl::StatusOr<std::unique_ptr<IndexStream>> Open(
        int64_t epoch) const override {
      if (epoch == 2) return absl::ResourceExhaustedError("no room for it");
      return std::make_unique<Stream>(epoch == 3);
    }
    OrderDescription Describe() const override {
      OrderDescription description;
      description.order = "failing";
      description.size = 8;
      return description;
    }
  };
  for (const int workers : {0, 2}) {
    LoaderOptions options;
    options.num_workers = workers;
    options.workers = Workers::kThreads;
    options.advance_epochs = true;
    SamplerOptions cut;
    cut.cut.batch_size = 4;
    const auto loader = *Loader::Create(
        std::make_shared<TestDataset>(8),
        *Sampler::Create(std::make_shared<Failing>(), cut), options);
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    Batch batch;
    for (int step = 0; step < 4; ++step) ASSERT_TRUE(*loader->Next(batch));
    const NextResult failed = loader->Next(batch);
    EXPECT_EQ(failed.kind(), NextKind::kStopped);
    EXPECT_THAT(failed, StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr("no room for it")));
    EXPECT_THAT(loader->Next(batch),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("stopped at an error of its order")));
    EXPECT_THAT(loader->StartEpoch(2),
                StatusIs(absl::StatusCode::kResourceExhausted));
    LOCKSTEP_EXPECT_OK(loader->SaveState().status());
    const auto fresh = *Loader::Create(
        std::make_shared<TestDataset>(8),
        *Sampler::Create(std::make_shared<Failing>(), cut), options);
    EXPECT_THAT(fresh->StartEpoch(2),
                StatusIs(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(fresh->SaveState(),
                StatusIs(absl::StatusCode::kFailedPrecondition));
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(3));
    ASSERT_TRUE(*loader->Next(batch));
    EXPECT_THAT(loader->Next(batch), StatusIs(absl::StatusCode::kDataLoss));
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(1));
    EXPECT_TRUE(*loader->Next(batch));
  }
}

TEST(Loader, IndicesThatAreNoneFailTheirRow) {
  class Wrong : public Order {
   public:
    class Stream : public IndexStream {
     public:
      int64_t size() const override { return 8; }
      absl::Status Read(int64_t first, int64_t stride,
                        absl::Span<int64_t> out) override {
        for (size_t i = 0; i < out.size(); ++i) {
          out[i] = first + static_cast<int64_t>(i) * stride;
          if (out[i] == 2) out[i] = -1;
          if (out[i] == 5) out[i] = 8;
        }
        return absl::OkStatus();
      }
    };
    absl::StatusOr<std::unique_ptr<IndexStream>> Open(int64_t) const override {
      return std::make_unique<Stream>();
    }
    OrderDescription Describe() const override {
      OrderDescription description;
      description.order = "wrong";
      description.size = 8;
      return description;
    }
  };
  LoaderOptions options;
  options.on_error = OnError::kSkip;
  SamplerOptions cut;
  cut.cut.batch_size = 4;
  const auto loader = *Loader::Create(
      std::make_shared<TestDataset>(8),
      *Sampler::Create(std::make_shared<Wrong>(), cut), options);
  for (auto& batch : loader->Epoch(0)) {
    EXPECT_EQ(batch->valid(), 3);
    ASSERT_EQ(batch->errors().size(), 1u);
    EXPECT_THAT(batch->errors()[0].status,
                StatusIs(absl::StatusCode::kOutOfRange,
                         HasSubstr("and the dataset has 8 samples")));
  }
}

TEST(Loader, DrainingBeginsNoStep) {
  const auto dataset = std::make_shared<TestDataset>(8);
  Barrier step_1_is_begun, drained;
  dataset->before = [&](int64_t, SampleContext& context) {
    if (context.position() == 1) {
      step_1_is_begun.Open();
      drained.Wait();
    }
    return absl::OkStatus();
  };
  TestJob job;
  job.size = 8;
  job.batch_size = 1;
  LoaderOptions options;
  options.num_workers = 1;
  options.workers = Workers::kThreads;
  const auto loader = Make(job, options, dataset);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_TRUE(*loader->Next(batch));
  step_1_is_begun.Wait();
  loader->Drain();
  drained.Open();
  absl::SleepFor(absl::Milliseconds(1));  // The worker could begin more steps.
  EXPECT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(batch.step(), 1);
  EXPECT_THAT(loader->Next(batch), IsOkAndHolds(false));
}

TEST(Loader, LimitsNestedThreads) {
  LoaderOptions options;
  options.num_workers = 2;
  options.limit_nested_threads = true;
  const auto loader = Make({}, options);
  DigestOfEpoch(*loader, 0);
}

TEST(Loader, DefaultsSuitTheMachine) {
  const auto loader = Make({}, {});
  EXPECT_GE(*loader->options().num_workers, 1);
  EXPECT_EQ(*loader->options().base_seed, 0u);
  DigestOfEpoch(*loader, 0);
}

}  // namespace
}  // namespace lockstep
