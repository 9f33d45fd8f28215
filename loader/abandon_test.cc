// These tests make loaders and drop them in every state: nothing may hang, leak
// or race. They are built for threads (without any suppression of the thread
// sanitizer) and for TBB.
#include <cstdint>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"

namespace lockstep {
namespace {

#ifdef LOCKSTEP_ABANDON_TBB
constexpr Workers kWorkers = Workers::kTbb;
#else
constexpr Workers kWorkers = Workers::kThreads;
#endif

TEST(Abandon, AtAnyTime) {
  Random random(RandomKey(6, 6, 6));
  const auto dataset = std::make_shared<TestDataset>(60);
  for (int i = 0; i < 10000; ++i) {
    TestJob job;
    job.size = 60;
    job.batch_size = random.Integer(1, 20);
    LoaderOptions options;
    options.workers = kWorkers;
    options.num_workers = random.Integer(1, 5);
    options.prefetch_batches = random.Integer(1, 6);
    options.delivery = static_cast<Delivery>(random.Below(2));
    auto loader = *Loader::Create(dataset, TestSampler(job), options);
    Batch held;
    if (random.Below(8) > 0) {
      LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    }
    for (uint64_t steps = random.Below(8); steps > 0; --steps) {
      Batch batch;
      const absl::StatusOr<bool> more = loader->Next(batch);
      if (!more.ok() || !*more) break;
      if (random.Below(3) == 0) held = std::move(batch);
      if (random.Below(10) == 0) {
        LOCKSTEP_ASSERT_OK(loader->StartEpoch(1));
      }
    }
    if (random.Below(2) == 0) held.Release();
    loader = nullptr;
  }
}

}  // namespace
}  // namespace lockstep
