// This tests what a loader does where memory runs out: once for each allocation
// of its calls, and of its workers where they are threads of Lockstep's. Each
// call ends in a Status, and what comes afterwards is right.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"

namespace {

std::atomic<bool> counts{false};
std::atomic<int64_t> allocations{0};
std::atomic<int64_t> fails{0};  // this one, from 1
// It is set while this thread is at the test's own work.
thread_local bool is_test = false;

bool Fails() {
  if (!counts.load(std::memory_order_relaxed) || is_test) return false;
  return allocations.fetch_add(1) + 1 == fails;
}

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

// Makes a call of Lockstep's, in which memory may run out.
template <typename Call>
auto In(const Call& call) {
  is_test = false;
  auto result = call();
  is_test = true;
  return result;
}

struct Mode {
  int num_workers;
  Workers workers;
};

class OutOfMemory : public testing::TestWithParam<Mode> {};

INSTANTIATE_TEST_SUITE_P(Workers, OutOfMemory,
                         testing::Values(Mode{0, Workers::kThreads},
                                         Mode{2, Workers::kThreads}));

// Returns the digest of what an epoch's batches are, or RESOURCE_EXHAUSTED.
absl::StatusOr<std::string> ReadOnce(const LoaderOptions& options) {
  TestJob job;
  job.size = 40;
  auto dataset = std::make_shared<TestDataset>(job.size);
  auto sampler = TestSampler(job);
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<Loader> loader, In([&] {
        return Loader::Create(std::move(dataset), std::move(sampler), options);
      }));
  LOCKSTEP_RETURN_IF_ERROR(In([&] { return loader->StartEpoch(0); }));
  std::string bytes;
  absl::Status failure;
  Batch batch;
  int64_t errors = 0;
  while (true) {
    const auto more = In([&] { return loader->Next(batch); });
    if (more.ok()) {
      if (!*more) break;
      bytes += BytesOf(batch);
      continue;
    }
    failure.Update(more.status());
    // A step that failed is passed over, and what stopped the loader stays.
    if (++errors > 3) break;
  }
  // The same loader reads another epoch, unless it has failed for good.
  if (In([&] { return loader->status(); }).ok()) {
    LOCKSTEP_RETURN_IF_ERROR(In([&] { return loader->StartEpoch(0); }));
    std::string again;
    while (true) {
      LOCKSTEP_ASSIGN_OR_RETURN(const bool more,
                                In([&] { return loader->Next(batch); }));
      if (!more) break;
      again += BytesOf(batch);
    }
    if (failure.ok()) {
      EXPECT_EQ(again, bytes);
    }
    bytes = again;
  }
  batch.Release();
  In([&] {
    loader = nullptr;
    return 0;
  });
  if (!failure.ok()) return failure;
  return Sha256(bytes);
}

TEST_P(OutOfMemory, EndsInAStatus) {
  is_test = true;
  LoaderOptions options;
  options.num_workers = GetParam().num_workers;
  options.workers = GetParam().workers;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string expected, ReadOnce(options));
  int64_t failed = 0;
  // The number of allocations depends on the workers, so the loop ends only
  // after 20 runs in a row in which none has failed.
  for (int64_t i = 1, unfailed = 0; unfailed < 20; ++i) {
    allocations = 0;
    fails = i;
    counts = true;
    const auto read = ReadOnce(options);
    counts = false;
    const bool has_failed = allocations >= i;
    unfailed = has_failed ? 0 : unfailed + 1;
    failed += has_failed;
    if (read.ok()) {
      EXPECT_EQ(*read, expected) << "allocation " << i;
    } else {
      EXPECT_EQ(read.status().code(), absl::StatusCode::kResourceExhausted)
          << "allocation " << i << ": " << read.status();
    }
  }
  EXPECT_GT(failed, 20);
}

}  // namespace
}  // namespace lockstep
