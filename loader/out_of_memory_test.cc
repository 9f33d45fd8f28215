// This tests what a loader does where memory runs out. A loader that is made
// returns a Status. Later, only large memory and user code do, and without
// memory for anything small the process ends: no step is lost or repeated.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"

namespace {

// Counts down to the allocation of this thread that fails.
thread_local int64_t left = 0;
// While this is true, all allocations fail.
std::atomic<bool> none_left{false};

bool Fails() { return none_left || (left > 0 && --left == 0); }

}  // namespace

void* operator new(size_t size) {
  void* const memory = Fails() ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return Fails() ? nullptr : std::malloc(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept {
  std::free(memory);
}

namespace lockstep {
namespace {

class OutOfMemory : public testing::TestWithParam<int> {
 protected:
  OutOfMemory() : dataset_(std::make_shared<TestDataset>(job_.size)) {
    options_.num_workers = GetParam();
    options_.workers = Workers::kThreads;
  }

  absl::StatusOr<std::unique_ptr<Loader>> Make() {
    auto sampler = TestSampler(job_);
    left = std::exchange(fails_, 0);
    auto loader = Loader::Create(dataset_, std::move(sampler), options_);
    fails_ = left;
    left = 0;
    return loader;
  }

  const TestJob job_;
  const std::shared_ptr<TestDataset> dataset_;
  LoaderOptions options_;
  // The allocation of Make that fails, and afterwards the number of
  // allocations that were left until then.
  int64_t fails_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Workers, OutOfMemory, testing::Values(0, 2));

TEST_P(OutOfMemory, ALoaderIsNotMade) {
  int64_t fails = 1;
  for (;; ++fails) {
    fails_ = fails;
    const auto loader = Make();
    if (fails_ > 0) {
      LOCKSTEP_EXPECT_OK(loader);
      break;
    }
    EXPECT_THAT(loader, StatusIs(absl::StatusCode::kResourceExhausted))
        << fails;
  }
  EXPECT_GT(fails, 20);
}

using OutOfMemoryDeathTest = OutOfMemory;

INSTANTIATE_TEST_SUITE_P(Workers, OutOfMemoryDeathTest, testing::Values(0, 2));

TEST_P(OutOfMemoryDeathTest, ACallEndsTheProcess) {
  const auto call = [&] {
    const auto loader = Make();
    none_left = true;
    static_cast<void>((*loader)->StartEpoch(0));
  };
  EXPECT_DEATH(call(), "^StartEpoch, so Lockstep ends this process");
}

TEST_P(OutOfMemoryDeathTest, ReadingEndsTheProcess) {
  dataset_->before = [](int64_t, SampleContext&) {
    none_left = true;  // not even for the error of this sample
    return absl::Status(absl::StatusCode::kDataLoss, "");
  };
  const auto read = [&] {
    const auto loader = Make();
    static_cast<void>((*loader)->StartEpoch(0));
    Batch batch;
    static_cast<void>((*loader)->Next(batch));
  };
  EXPECT_DEATH(read(), GetParam() == 0
                           ? "^Next, so Lockstep ends this process"
                           : "^a worker of a loader, so Lockstep ends");
}

}  // namespace
}  // namespace lockstep
