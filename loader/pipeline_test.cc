// This tests that the consumer of a pipeline is woken by what it waits for. It
// does not look again by itself here, so a wake-up that is lost is a hang.
#include "lockstep/loader/pipeline.h"

#include <cstdint>
#include <functional>
#include <future>  // NOLINT: a worker that waits
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/loader/slot.h"
#include "lockstep/loader/slot_pool.h"
#include "lockstep/loader/testing.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep::internal_loader {
namespace {

constexpr int64_t kYears = int64_t{1} << 60;  // 36 years in nanoseconds

struct ConsumerOptions {
  Delivery delivery = Delivery::kInOrder;
  int64_t steps = 4;
  int workers = 2;
  int64_t slots = 2;
};

// Takes steps of one row each from a pipeline that reads on threads.
class Consumer {
 public:
  // `read` is called for the row of each step, and `plan` while one is planned.
  Consumer(
      const ConsumerOptions& consumer, std::function<void(int64_t step)> read,
      std::function<void()> plan = [] {}) {
    LoaderOptions options;
    options.num_workers = consumer.workers;
    options.workers = Workers::kThreads;
    options.prefetch_next_epoch = false;
    options.delivery = consumer.delivery;
    options.base_seed = 0;
    TestJob job;
    job.size = consumer.steps;
    job.batch_size = 1;
    const auto dataset = std::make_shared<TestDataset>(job.size);
    dataset->before = [read = std::move(read)](int64_t,
                                               SampleContext& context) {
      read(context.position());
      return absl::OkStatus();
    };
    dataset->on_hint = [plan = std::move(plan)](absl::Span<const int64_t>) {
      plan();
    };
    pool_ = *SlotPool::Create(dataset->fields(), /*rows=*/1, consumer.slots,
                              /*memory=*/nullptr);
    pipeline_ = *Pipeline::Create(dataset, TestSampler(job), options, pool_);
    pipeline_->set_look_again(kYears);
    pipeline_->Restart(
        [](Sampler& sampler) { return sampler.StartEpoch(0).ok(); });
  }

  // Returns the number of the next step, or -1 at the end.
  int64_t Next() {
    const absl::StatusOr<Entry*> entry = pipeline_->Await(kYears);
    LOCKSTEP_EXPECT_OK(entry.status());
    Slot* const slot = (*entry)->slot;
    const int64_t step = slot == nullptr ? -1 : slot->step;
    pipeline_->Pop(**entry);
    if (slot != nullptr) pool_->GiveBack(*slot);
    return step;
  }

 private:
  std::shared_ptr<SlotPool> pool_;
  std::unique_ptr<Pipeline> pipeline_;
};

// Reads so slowly that the consumer waits.
void ReadSlowly() { absl::SleepFor(absl::Milliseconds(1)); }

TEST(Pipeline, TheOldestBatchWakesTheConsumer) {
  Consumer consumer({}, [](int64_t) { ReadSlowly(); });
  for (const int64_t step : {0, 1, 2, 3, -1}) EXPECT_EQ(consumer.Next(), step);
}

// Where batches take some microseconds, a consumer sleeps until several of them
// are ready. The oldest one is enough if the others take longer.
TEST(Pipeline, TheOldestBatchIsEnoughForAConsumerThatWantsSeveral) {
  constexpr int64_t kSlow = 50;
  for (int round = 0; round < 10; ++round) {
    std::promise<void> is_taken;
    Consumer consumer({Delivery::kInOrder, /*steps=*/kSlow + 2, /*workers=*/1,
                       /*slots=*/7},
                      [&](int64_t step) {
                        const absl::Time begin = absl::Now();
                        while (absl::Now() - begin < absl::Microseconds(10)) {
                        }
                        if (step == kSlow) ReadSlowly();
                        if (step == kSlow + 1) is_taken.get_future().wait();
                      });
    for (int64_t step = 0; step <= kSlow; ++step) {
      EXPECT_EQ(consumer.Next(), step);
    }
    is_taken.set_value();
    for (const int64_t step : {kSlow + 1, int64_t{-1}}) {
      EXPECT_EQ(consumer.Next(), step);
    }
  }
}

TEST(Pipeline, OutOfOrderAnyBatchWakesTheConsumer) {
  std::promise<void> others_are_done;
  Consumer consumer({Delivery::kAsReady}, [&](int64_t step) {
    if (step == 0) others_are_done.get_future().wait();
    ReadSlowly();
  });
  for (const int64_t step : {1, 2, 3}) EXPECT_EQ(consumer.Next(), step);
  others_are_done.set_value();
  for (const int64_t step : {0, -1}) EXPECT_EQ(consumer.Next(), step);
}

// A worker that plans wakes another one where the consumer has begun to wait
// meanwhile: it is itself busy with that step for long.
TEST(Pipeline, AWorkerThatHasPlannedWakesOthers) {
  std::promise<void> others_are_done;
  Consumer consumer(
      {Delivery::kAsReady},
      [&](int64_t step) {
        if (step == 0) others_are_done.get_future().wait();
      },
      [] { absl::SleepFor(absl::Milliseconds(20)); });
  for (const int64_t step : {1, 2, 3}) EXPECT_EQ(consumer.Next(), step);
  others_are_done.set_value();
  for (const int64_t step : {0, -1}) EXPECT_EQ(consumer.Next(), step);
}

}  // namespace
}  // namespace lockstep::internal_loader
