// These tests give up the wait for a batch.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// Holds the reads of one sample. It outlives the loaders, whose workers may use
// it when a test is over.
// Thread-safety: thread-safe.
class Hold {
 public:
  void Wait() {
    MutexLock lock(mutex_);
    ++reading_;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(mutex_);
    --reading_;
    changed_.NotifyAll();
  }
  void AwaitReader() {
    MutexLock lock(mutex_);
    while (reading_ == 0) changed_.Wait(mutex_);
  }
  bool has_reader() {
    MutexLock lock(mutex_);
    return reading_ > 0;
  }
  // Lets the readers go, and waits until they have gone.
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
    while (reading_ > 0) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int reading_ = 0;
  bool open_ = false;
};

class GiveUp : public testing::TestWithParam<Workers> {
 protected:
  // Makes a loader whose sample 60 is held.
  std::unique_ptr<Loader> Make(int64_t batch_size = TestJob().batch_size) {
    const auto dataset = std::make_shared<TestDataset>(TestJob().size);
    dataset->before = [hold = hold_](int64_t index, SampleContext&) {
      if (index == 60) hold->Wait();
      return absl::OkStatus();
    };
    options_.num_workers = 2;
    options_.workers = GetParam();
    TestJob job;
    job.batch_size = batch_size;
    return *Loader::Create(dataset, TestSampler(job), options_);
  }

  // Reads until the wait is given up. Returns what was read, and sets `end`.
  static std::string ReadOn(Loader& loader, absl::Status& end) {
    std::string bytes;
    Batch batch;
    while (true) {
      const NextResult next = loader.Next(batch);
      end = next.status();
      EXPECT_NE(next.kind(), NextKind::kFailedStep);
      EXPECT_NE(next.kind(), NextKind::kStopped);
      if (next.kind() != NextKind::kBatch) return bytes;
      bytes += BytesOf(batch);
    }
  }

  const std::shared_ptr<Hold> hold_ = std::make_shared<Hold>();
  LoaderOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Workers, GiveUp,
                         testing::Values(Workers::kThreads, Workers::kTbb));

TEST_P(GiveUp, NoStepIsLost) {
  const auto loader = Make();
  int asked = 0;
  absl::Duration longest;
  loader->GiveUpWhen([&](absl::Duration waited) {
    EXPECT_GE(waited, absl::ZeroDuration());
    longest = std::max(longest, waited);
    return hold_->has_reader() && ++asked >= 3;
  });
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  absl::Status end;
  std::string bytes = ReadOn(*loader, end);
  EXPECT_THAT(end, StatusIs(absl::StatusCode::kCancelled,
                            HasSubstr("reads sample 60 for")));
  EXPECT_GE(asked, 3);
  EXPECT_GT(longest, absl::ZeroDuration());
  LOCKSTEP_EXPECT_OK(loader->status());
  hold_->Open();
  loader->GiveUpWhen(nullptr);
  bytes += ReadOn(*loader, end);
  LOCKSTEP_EXPECT_OK(end);

  const auto other = Make();
  LOCKSTEP_ASSERT_OK(other->StartEpoch(0));
  EXPECT_EQ(bytes, ReadOn(*other, end));
}

TEST_P(GiveUp, ALoaderThatGaveUpIsDestroyedWhileItsSampleIsRead) {
  // Collate may use what is gone, so it is not called any more.
  const auto is_gone = std::make_shared<std::atomic<bool>>(false);
  options_.collate = [is_gone](BatchView&, Random&) {
    EXPECT_FALSE(*is_gone);
    return absl::OkStatus();
  };
  auto loader = Make(/*batch_size=*/1);  // so that the sample completes a batch
  loader->GiveUpWhen([](absl::Duration) { return true; });
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  absl::Status end;
  do {
    ReadOn(*loader, end);
    ASSERT_TRUE(absl::IsCancelled(end)) << end;
  } while (!hold_->has_reader());
  loader = nullptr;
  *is_gone = true;
  hold_->Open();
}

TEST_P(GiveUp, ALoaderThatTimedOutIsDestroyedWhileItsSampleIsRead) {
  options_.timeout = absl::Milliseconds(1);
  auto loader = Make();
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  absl::Status end;
  do {
    ReadOn(*loader, end);
    ASSERT_TRUE(absl::IsDeadlineExceeded(end)) << end;
  } while (!hold_->has_reader());
  loader = nullptr;
  hold_->Open();
}

TEST_P(GiveUp, ALoaderThatGaveUpOnceGoesOnAndIsDestroyed) {
  auto loader = Make();
  loader->GiveUpWhen([](absl::Duration) { return true; });
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  hold_->AwaitReader();
  absl::Status end;
  ReadOn(*loader, end);
  EXPECT_TRUE(absl::IsCancelled(end)) << end;
  hold_->Open();
  loader->GiveUpWhen(nullptr);
  ReadOn(*loader, end);
  LOCKSTEP_EXPECT_OK(end);
  loader = nullptr;
}

// An error of the dataset with that code is told apart.
TEST_P(GiveUp, CancelledByTheDatasetIsALostStep) {
  const auto dataset = std::make_shared<TestDataset>(TestJob().size);
  dataset->before = [](int64_t, SampleContext&) {
    return absl::CancelledError("the user has left");
  };
  options_.num_workers = 1;
  options_.workers = GetParam();
  const auto loader =
      *Loader::Create(dataset, TestSampler(TestJob()), options_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  const NextResult next = loader->Next(batch);
  EXPECT_EQ(next.kind(), NextKind::kFailedStep);
  EXPECT_THAT(next, StatusIs(absl::StatusCode::kCancelled,
                             HasSubstr("the user has left")));
}

}  // namespace
}  // namespace lockstep
