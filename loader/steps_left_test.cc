// These tests check how many steps an epoch has left while other steps of it,
// and of the next epoch, are read ahead.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/windowed.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr int64_t kSteps = 13;  // of a TestJob

std::unique_ptr<Loader> Make(const LoaderOptions& options,
                             std::shared_ptr<Dataset> dataset = nullptr) {
  const TestJob job;
  if (dataset == nullptr) dataset = std::make_shared<TestDataset>(job.size);
  auto loader = Loader::Create(std::move(dataset), TestSampler(job), options);
  EXPECT_TRUE(loader.ok()) << loader.status();
  return std::move(loader).value();
}

// The tests run without workers, and with workers that read ahead a part of the
// epoch, or the next epoch as well.
class StepsLeftTest : public testing::TestWithParam<int> {
 protected:
  StepsLeftTest() {
    options_.num_workers = GetParam() == 0 ? 0 : 2;
    options_.prefetch_batches = GetParam() == 0 ? 1 : GetParam();
  }

  LoaderOptions options_;
};

INSTANTIATE_TEST_SUITE_P(, StepsLeftTest, testing::Values(0, 3, 40),
                         [](const auto& info) {
                           return "Ahead" + std::to_string(info.param);
                         });

TEST_P(StepsLeftTest, CountsWhatNextHasNotGivenOut) {
  const auto loader = Make(options_);
  EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(kSteps));
  Batch batch;
  for (const int64_t epoch : {0, 1, 5}) {
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(epoch));
    for (int64_t left = kSteps; left > 0; --left) {
      EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(left));
      ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
    }
    EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(0));
    ASSERT_THAT(loader->Next(batch), IsOkAndHolds(false));
    EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(0));
  }
}

TEST_P(StepsLeftTest, IsThereInARangeAndAfterARestore) {
  const auto loader = Make(options_);
  std::string state;
  for (absl::StatusOr<Batch>& batch : loader->Epoch(2)) {
    LOCKSTEP_ASSERT_OK(batch.status());
    EXPECT_EQ(loader->progress().steps_taken + *loader->StepsLeft(), kSteps);
    if (batch->step() == 6) state = *loader->SaveState();
  }
  const auto restored = Make(options_);
  LOCKSTEP_ASSERT_OK(restored->RestoreState(state));
  EXPECT_THAT(restored->StepsLeft(), IsOkAndHolds(6));
  for (absl::StatusOr<Batch>& batch : restored->Epoch(2)) {
    LOCKSTEP_ASSERT_OK(batch.status());
    EXPECT_EQ(restored->progress().steps_taken + *restored->StepsLeft(),
              kSteps);
  }
}

TEST_P(StepsLeftTest, LeavesOutWhatIsSkippedInThisEpoch) {
  const auto loader = Make(options_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  LOCKSTEP_ASSERT_OK(loader->Skip(8, 100));
  EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(2));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(1));
  EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(kSteps));
}

TEST_P(StepsLeftTest, DrainingLeavesSteps) {
  const auto loader = Make(options_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  loader->Drain();
  Batch batch;
  int64_t steps = 0;
  while (*loader->Next(batch)) ++steps;
  EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(kSteps - steps));
}

TEST_P(StepsLeftTest, KnowsMaxSteps) {
  options_.max_steps = 2 * kSteps - 3;
  for (const bool advance : {false, true}) {
    options_.advance_epochs = advance;
    const auto loader = Make(options_);
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    Batch batch;
    for (int64_t step = 0; step < kSteps; ++step) {
      EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(kSteps - step));
      ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
    }
    EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(0));
    if (!advance) {
      ASSERT_THAT(loader->Next(batch), IsOkAndHolds(false));
      LOCKSTEP_ASSERT_OK(loader->StartEpoch(1));
      EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(kSteps - 3));
    }
    for (int64_t left = kSteps - 4; left >= 0; --left) {
      ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
      EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(left));
    }
    ASSERT_THAT(loader->Next(batch), IsOkAndHolds(false));
    EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(0));
  }
}

TEST_P(StepsLeftTest, StepsThatFailAreTaken) {
  const auto dataset = std::make_shared<TestDataset>(TestJob().size);
  dataset->before = [](int64_t, SampleContext& context) {
    return context.position() == 20 ? absl::DataLossError("torn")
                                    : absl::OkStatus();
  };
  const auto loader = Make(options_, dataset);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  for (int64_t left = kSteps; left > 0;) {
    EXPECT_EQ(loader->Next(batch).ok(), left != kSteps - 2);
    EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(--left));
  }
  EXPECT_THAT(loader->Next(batch), IsOkAndHolds(false));
}

TEST_P(StepsLeftTest, LooksThroughOrdersThatGroup) {
  GroupedOptions grouped;
  NativeShuffleOptions shuffle;
  shuffle.size = TestJob().size;
  grouped.window.inner = *NativeShuffle::Create(shuffle);
  grouped.window.global_batch = 8;
  grouped.window.batches = 4;
  for (int64_t i = 0; i < shuffle.size; ++i) grouped.groups.push_back(i % 3);
  SamplerOptions cut;
  cut.cut.batch_size = 8;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Loader> loader,
      Loader::Create(std::make_shared<TestDataset>(shuffle.size),
                     *Sampler::Create(*GroupedOrder::Create(grouped), cut),
                     options_));
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(epoch));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(int64_t left, loader->StepsLeft());
    EXPECT_GT(left, kSteps);
    Batch batch;
    while (*loader->Next(batch)) {
      EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(--left));
    }
    EXPECT_EQ(left, 0);
  }
}

// The first sample of each epoch waits until the test releases it.
class FirstIsLast {
 public:
  FirstIsLast() : dataset_(std::make_shared<TestDataset>(TestJob().size)) {
    dataset_->before = [this](int64_t, SampleContext& context) {
      if (context.position() > 0) return absl::OkStatus();
      MutexLock lock(mutex_);
      while (let_go_ < context.epoch()) changed_.Wait(mutex_);
      return absl::OkStatus();
    };
  }

  void LetGo(int64_t epoch) {
    MutexLock lock(mutex_);
    let_go_ = epoch;
    changed_.NotifyAll();
  }
  std::shared_ptr<Dataset> dataset() const { return dataset_; }

 private:
  const std::shared_ptr<TestDataset> dataset_;
  Mutex mutex_;
  CondVar changed_;
  int64_t let_go_ ABSL_GUARDED_BY(mutex_) = -1;
};

TEST(StepsLeft, CountsOutOfOrder) {
  for (const bool advance : {false, true}) {
    FirstIsLast first;
    LoaderOptions options;
    options.num_workers = 2;
    options.workers = Workers::kThreads;
    options.delivery = Delivery::kAsReady;
    options.prefetch_batches = 5;
    options.advance_epochs = advance;
    const auto loader = Make(options, first.dataset());
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    Batch batch;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      for (int64_t left = kSteps - 1; left >= 0; --left) {
        if (left == kSteps - 4) first.LetGo(epoch);
        ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
        EXPECT_EQ(batch.epoch(), epoch);
        EXPECT_TRUE(batch.step() > 0 || left <= kSteps - 4);
        EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(left));
      }
      if (advance) continue;
      ASSERT_THAT(loader->Next(batch), IsOkAndHolds(false));
      LOCKSTEP_ASSERT_OK(loader->StartEpoch(epoch + 1));
      EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(kSteps));
    }
    first.LetGo(3);
  }
}

TEST(StepsLeft, AnOrderThatFailsIsTold) {
  class Failing : public Order {
   public:
    absl::StatusOr<std::unique_ptr<IndexStream>> Open(int64_t) const override {
      throw 1;
    }
    OrderDescription Describe() const override {
      OrderDescription description;
      description.order = "failing";
      description.size = 8;
      return description;
    }
  };
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Loader> loader,
      Loader::Create(std::make_shared<TestDataset>(8),
                     *Sampler::Create(std::make_shared<Failing>(), {})));
  EXPECT_THAT(loader->StepsLeft(),
              StatusIs(absl::StatusCode::kUnknown, HasSubstr("the order")));
}

}  // namespace
}  // namespace lockstep
