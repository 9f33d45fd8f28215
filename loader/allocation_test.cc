// Batches of fixed shape cost no allocation, once the first epoch is over.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

void* operator new(size_t size) {
  ++allocations;
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace lockstep {
namespace {

struct Mode {
  int num_workers;
  Workers workers;
};

class AllocationTest : public testing::TestWithParam<Mode> {};

INSTANTIATE_TEST_SUITE_P(Workers, AllocationTest,
                         testing::Values(Mode{0, Workers::kTbb},
                                         Mode{3, Workers::kTbb},
                                         Mode{3, Workers::kThreads}));

TEST_P(AllocationTest, NoneInSteadyState) {
  TestJob job;
  job.size = 40000;
  job.batch_size = 16;
  LoaderOptions options;
  options.num_workers = GetParam().num_workers;
  options.workers = GetParam().workers;
  const auto loader = *Loader::Create(std::make_shared<TestDataset>(job.size),
                                      TestSampler(job), options);
  Batch batch;
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  for (int step = 0; step < 1000; ++step) ASSERT_TRUE(*loader->Next(batch));
  const int64_t before = allocations;
  for (int step = 0; step < 1000; ++step) ASSERT_TRUE(*loader->Next(batch));
  EXPECT_EQ(allocations - before, 0);
}

}  // namespace
}  // namespace lockstep
