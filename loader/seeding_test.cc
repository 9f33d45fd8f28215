#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

struct Mode {
  int num_workers;
  Workers workers;
};

class SeedingTest : public testing::TestWithParam<Mode> {
 protected:
  SeedingTest() {
    options_.num_workers = GetParam().num_workers;
    options_.workers = GetParam().workers;
  }

  std::unique_ptr<Loader> Make() {
    TestJob job;
    job.size = dataset_->size();
    return *Loader::Create(dataset_, TestSampler(job), options_);
  }

  const std::shared_ptr<TestDataset> dataset_ =
      std::make_shared<TestDataset>(400);
  LoaderOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Workers, SeedingTest,
                         testing::Values(Mode{0, Workers::kTbb},
                                         Mode{1, Workers::kTbb},
                                         Mode{4, Workers::kTbb},
                                         Mode{4, Workers::kThreads}));

TEST_P(SeedingTest, WorkersAreInitialisedOnceBeforeTheirFirstSample) {
  struct Scratch {
    int id;
    bool in_use = false;
  };
  const int workers = std::max(1, GetParam().num_workers);
  std::atomic<int> inits[4] = {};
  Mutex mutex;
  CondVar changed;
  int begun = 0;
  options_.base_seed = 1000;
  options_.worker_init = [&](WorkerInfo& worker) {
    ++inits[worker.id];
    EXPECT_EQ(worker.num_workers, GetParam().num_workers);
    EXPECT_EQ(worker.seed, 1000u + worker.id);
    worker.state = std::make_shared<Scratch>(Scratch{worker.id});
    return absl::OkStatus();
  };
  dataset_->before = [&](int64_t, SampleContext& context) {
    // Only one sample at a time may use the state.
    auto& scratch = context.worker().State<Scratch>();
    EXPECT_EQ(scratch.id, context.worker().id);
    EXPECT_FALSE(std::exchange(scratch.in_use, true));
    EXPECT_EQ(inits[scratch.id], 1);
    {
      // No first sample ends before every worker has one.
      MutexLock lock(mutex);
      ++begun;
      changed.NotifyAll();
      while (begun < workers) changed.Wait(mutex);
    }
    scratch.in_use = false;
    return absl::OkStatus();
  };
  const auto loader = Make();
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    DigestOfEpoch(*loader, epoch % 3);
  }
  for (int id = 0; id < 4; ++id) EXPECT_EQ(inits[id], id < workers ? 1 : 0);
  EXPECT_EQ(loader->Metrics().effective_workers, GetParam().num_workers);
}

TEST_P(SeedingTest, AFailingInitIsAStatusForGood) {
  for (const bool throws : {false, true}) {
    options_.worker_init = [throws](WorkerInfo&) -> absl::Status {
      if (throws) throw std::logic_error("no decoder");
      return absl::NotFoundError("no decoder");
    };
    const auto loader = Make();
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    Batch batch;
    const absl::Status status = loader->Next(batch).status();
    EXPECT_THAT(status, StatusIs(throws ? absl::StatusCode::kUnknown
                                        : absl::StatusCode::kNotFound,
                                 HasSubstr("worker_init failed for worker ")));
    EXPECT_THAT(status.message(), HasSubstr("no decoder"));
    EXPECT_EQ(loader->Next(batch).status(), status);
    EXPECT_EQ(loader->StartEpoch(0), status);
    EXPECT_EQ(loader->status(), status);
  }
}

TEST_P(SeedingTest, NumbersBelongToThePlace) {
  // The draws by (epoch, position). They depend on no sample, worker or
  // restart.
  Mutex mutex;
  std::map<std::pair<int64_t, int64_t>, uint64_t> draws;
  std::set<uint64_t> distinct;
  dataset_->before = [&](int64_t, SampleContext& context) {
    Random copy = context.rng();
    const uint64_t draw = copy();
    MutexLock lock(mutex);
    const auto [known, fresh] =
        draws.insert({{context.epoch(), context.position()}, draw});
    EXPECT_EQ(known->second, draw);
    if (fresh) {
      EXPECT_TRUE(distinct.insert(draw).second);
    }
    return absl::OkStatus();
  };
  options_.prefetch_next_epoch = false;
  const auto loader = Make();
  DigestOfEpoch(*loader, 0);
  DigestOfEpoch(*loader, 1);
  DigestOfEpoch(*loader, 0);
  EXPECT_EQ(draws.size(), 800u);
  // Another seed gives other numbers.
  draws.clear();
  options_.seed = 1;
  DigestOfEpoch(*Make(), 0);
  EXPECT_EQ(distinct.size(), 1200u);
}

TEST(Seeding, PaddingHasNumbersOfItsOwn) {
  TestJob job;
  job.size = 5;
  job.batch_size = 4;
  job.world = 2;
  std::set<std::string> rows;
  for (job.rank = 0; job.rank < 2; ++job.rank) {
    LoaderOptions options;
    options.num_workers = 0;
    const auto loader = *Loader::Create(std::make_shared<TestDataset>(5),
                                        TestSampler(job), options);
    for (auto& batch : loader->Epoch(0)) {
      for (int64_t row = 0; row < batch->rows(); ++row) {
        const auto x = *batch->Row<float>("x", row);
        rows.insert(std::string(reinterpret_cast<const char*>(x.data()), 16));
      }
    }
  }
  EXPECT_EQ(rows.size(), 6u);  // of five samples
}

}  // namespace
}  // namespace lockstep
