// This tests what a loader reports if the system starts no thread. It is a
// program of its own, since TBB keeps the threads that it has.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <memory>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"

namespace {
std::atomic<bool> none_left{false};
}  // namespace

// This function takes the place of the C library's, for TBB as well.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* options,
                              void* (*function)(void*), void* argument) {
  if (none_left) return EAGAIN;
  using Create =
      int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create =
      reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, options, function, argument);
}

namespace lockstep {
namespace {

TEST(NoThreads, IsAStatus) {
  for (const Workers workers : {Workers::kThreads, Workers::kTbb}) {
    TestJob job;
    job.size = 100;
    LoaderOptions options;
    options.num_workers = 2;
    options.workers = workers;
    none_left = true;
    auto loader = Loader::Create(std::make_shared<TestDataset>(job.size),
                                 TestSampler(job), options);
    absl::Status status = loader.status();
    if (loader.ok()) {
      status = (*loader)->StartEpoch(0);
      Batch batch;
      if (status.ok()) status = (*loader)->Next(batch).status();
    }
    none_left = false;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                                 testing::HasSubstr("worker")));
  }
}

}  // namespace
}  // namespace lockstep
