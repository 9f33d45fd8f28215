// These tests check that the loader works on its own threads, leaves the host's
// TBB as it is, prints nothing, and survives a fork.
#include <sys/wait.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>  // NOLINT: identities of threads
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/executor.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"

namespace lockstep {
namespace {

class PoliteTest : public testing::TestWithParam<Workers> {
 protected:
  // On a slow machine, TBB's threads may come late.
  PoliteTest() { internal_loader::SetTbbPatience(absl::Hours(1)); }

  std::unique_ptr<Loader> Make(int num_workers) {
    TestJob job;
    job.size = dataset_->size();
    options_.num_workers = num_workers;
    options_.workers = GetParam();
    return *Loader::Create(dataset_, TestSampler(job), options_);
  }

  // Tests that fork need workers at rest: a lock of a sanitizer that a worker
  // holds during the fork is held for ever in the child.
  void CountBatches() {
    // With more batches ahead, the last slot may stay free until Next is
    // called.
    options_.prefetch_batches = 1;
    options_.collate = [this](BatchView&, Random&) {
      MutexLock lock(mutex_);
      ++batches_;
      changed_.NotifyAll();
      return absl::OkStatus();
    };
  }
  void AwaitBatches(int batches) {
    MutexLock lock(mutex_);
    while (batches_ < batches) changed_.Wait(mutex_);
  }

  const std::shared_ptr<TestDataset> dataset_ =
      std::make_shared<TestDataset>(400);
  LoaderOptions options_;

 private:
  Mutex mutex_;
  CondVar changed_;
  int batches_ = 0;  // that were read
};

INSTANTIATE_TEST_SUITE_P(Workers, PoliteTest,
                         testing::Values(Workers::kTbb, Workers::kThreads));

TEST_P(PoliteTest, HostThreadsNeverReadSamples) {
  const std::thread::id host = std::this_thread::get_id();
  std::atomic<int> on_host{0};
  dataset_->before = [&](int64_t, SampleContext&) {
    on_host += std::this_thread::get_id() == host;
    // A worker takes no other sample while it waits for its own.
    static thread_local bool reading = false;
    EXPECT_FALSE(std::exchange(reading, true));
    std::atomic<int> done{0};
    tbb::parallel_for(0, 8, [&](int) { ++done; });
    EXPECT_EQ(done, 8);
    reading = false;
    return absl::OkStatus();
  };
  const auto loader = Make(3);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  while (*loader->Next(batch)) {
    // The host waits in TBB, where it would run any task that it can get.
    tbb::parallel_for(0, 16, [](int) {});
  }
  EXPECT_EQ(on_host, 0);
}

TEST_P(PoliteTest, PrintsNothingAndLeavesTheHostsArenas) {
  using tbb::global_control;
  const int width = tbb::this_task_arena::max_concurrency();
  const size_t limit =
      global_control::active_value(global_control::max_allowed_parallelism);
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  {
    const auto many = Make(32);
    options_.keep_tbb_limit = true;
    const auto kept = Make(32);
    DigestOfEpoch(*many, 0);
    DigestOfEpoch(*kept, 0);
    EXPECT_EQ(tbb::this_task_arena::max_concurrency(), width);
    tbb::task_arena arena;
    EXPECT_EQ(arena.max_concurrency(), width);
    std::thread([width] {
      EXPECT_EQ(tbb::this_task_arena::max_concurrency(), width);
    }).join();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(
      global_control::active_value(global_control::max_allowed_parallelism),
      limit);
}

// TBB by itself would run one of these at a time on a machine with two
// processors. Each sample waits until as many are being read as there are
// workers.
TEST_P(PoliteTest, GetsTheWorkersThatWereAskedFor) {
  constexpr int kWorkers = 6;
  Mutex mutex;
  CondVar changed;
  int reading = 0, most = 0;
  dataset_->before = [&](int64_t, SampleContext&) {
    MutexLock lock(mutex);
    most = std::max(most, ++reading);
    changed.NotifyAll();
    while (most < kWorkers) changed.Wait(mutex);
    --reading;
    return absl::OkStatus();
  };
  const auto loader = Make(kWorkers);
  DigestOfEpoch(*loader, 0);
  EXPECT_EQ(most, kWorkers);
  EXPECT_EQ(loader->Metrics().effective_workers, kWorkers);
}

TEST_P(PoliteTest, ALimitOfTheHostsIsKept) {
  options_.keep_tbb_limit = true;
  tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
  EXPECT_NE(DigestOfEpoch(*Make(4), 0), "");
}

TEST_P(PoliteTest, PrintsNothingUnderALimitOfTheHosts) {
  for (const int limit : {1, 2, 3}) {
    tbb::global_control control(tbb::global_control::max_allowed_parallelism,
                                limit);
    for (const bool keeps : {false, true}) {
      options_.keep_tbb_limit = keeps;
      testing::internal::CaptureStderr();
      const auto loader = Make(4);
      EXPECT_NE(DigestOfEpoch(*loader, 0), "");
      EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
      if (GetParam() == Workers::kTbb) {
        EXPECT_LE(loader->Metrics().effective_workers, std::max(1, limit - 1));
      }
    }
  }
}

// A dataset whose samples are batches of another loader, one for each worker.
class NestedDataset : public TestDataset {
 public:
  NestedDataset(int64_t size, const LoaderOptions& options)
      : TestDataset(size), options_(options) {
    before = [this](int64_t, SampleContext& context) {
      return ReadInner(context);
    };
  }

  // Makes what its samples need.
  std::function<absl::Status(WorkerInfo&)> worker_init() {
    return [this](WorkerInfo& worker) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(
          std::shared_ptr<Loader> inner,
          Loader::Create(std::make_shared<TestDataset>(TestJob().size),
                         TestSampler(TestJob()), options_));
      worker.state = std::move(inner);
      return absl::OkStatus();
    };
  }

 private:
  static absl::Status ReadInner(SampleContext& context) {
    auto& inner = context.worker().State<Loader>();
    LOCKSTEP_RETURN_IF_ERROR(inner.StartEpoch(context.index()));
    Batch batch;
    for (int i = 0; i < 5; ++i) {
      LOCKSTEP_ASSIGN_OR_RETURN(const bool more, inner.Next(batch));
      if (!more) return absl::DataLossError("the inner epoch is short");
    }
    return absl::OkStatus();
  }

  const LoaderOptions options_;
};

// TBB may have a single worker, which waits for the inner loader.
TEST_P(PoliteTest, LoadersMayBeNested) {
  const auto run = [&](bool keeps) {
    LoaderOptions inner;
    inner.num_workers = 2;
    inner.workers = GetParam();
    inner.keep_tbb_limit = keeps;
    const auto nested = std::make_shared<NestedDataset>(TestJob().size, inner);
    LoaderOptions outer = inner;
    outer.worker_init = nested->worker_init();
    const auto loader = Loader::Create(nested, TestSampler(TestJob()), outer);
    LOCKSTEP_ASSERT_OK(loader);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      for (auto& batch : (*loader)->Epoch(epoch)) LOCKSTEP_ASSERT_OK(batch);
    }
  };
  for (const bool keeps : {false, true}) run(keeps);
  for (const int limit : {1, 2}) {
    tbb::global_control control(tbb::global_control::max_allowed_parallelism,
                                limit);
    for (const bool keeps : {false, true}) run(keeps);
  }
}

TEST_P(PoliteTest, AHostThatKeepsTbbBusyDoesNotStarveIt) {
  std::atomic<bool> done{false};
  std::thread host([&] {
    while (!done) {
      tbb::parallel_for(0, 1000, [](int) {
        for (volatile int i = 0; i < 1000; ++i) {
        }
      });
    }
  });
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    EXPECT_NE(DigestOfEpoch(*Make(2), epoch), "");
  }
  done = true;
  host.join();
}

TEST_P(PoliteTest, AForkedProcessGetsAStatus) {
  CountBatches();
  const auto loader = Make(2);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  auto batch = std::make_unique<Batch>();
  ASSERT_TRUE(*loader->Next(*batch));
  AwaitBatches(2);  // this one and the next
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(240);  // a hang ends here, and fails the test
    Batch other;
    std::string said(loader->Next(other).status().message());
    said += '\n';
    said += std::string(loader->StartEpoch(1).message());
    batch = nullptr;
    const_cast<std::unique_ptr<Loader>&>(loader) = nullptr;
    const bool all = write(pipe_ends[1], said.data(), said.size()) ==
                     static_cast<ssize_t>(said.size());
    _exit(all ? 0 : 1);
  }
  close(pipe_ends[1]);
  std::string said;
  char buffer[1024];
  for (ssize_t n; (n = read(pipe_ends[0], buffer, sizeof(buffer))) > 0;) {
    said.append(buffer, n);
  }
  close(pipe_ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(said,
              testing::MatchesRegex(
                  "this process was forked.*\nthis process was forked.*"));
  // The fork has changed nothing for the parent.
  while (*loader->Next(*batch)) {
  }
}

// A fork does not have the workers of TBB, and TBB would wait for them.
TEST_P(PoliteTest, AForkedProcessMakesLoadersOfThreads) {
  CountBatches();
  {
    const auto loader = Make(2);
    DigestOfEpoch(*loader, 0);
    AwaitBatches(52);  // this epoch's, and two of the next
  }
  const pid_t child = fork();
  if (child == 0) {
    alarm(240);  // a hang ends here, and fails the test
    TestJob job;
    job.size = 50;
    LoaderOptions options;
    options.num_workers = 2;
    const auto dataset = std::make_shared<TestDataset>(50);
    const bool refused = absl::IsFailedPrecondition(
        Loader::Create(dataset, TestSampler(job), options).status());
    options.workers = Workers::kThreads;
    const auto loader = Loader::Create(dataset, TestSampler(job), options);
    const bool read = loader.ok() && !DigestOfEpoch(**loader, 0).empty();
    _exit(read && (refused || GetParam() == Workers::kThreads) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep
