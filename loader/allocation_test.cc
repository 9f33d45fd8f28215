// Batches of fixed shape need no allocation after the first epoch.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "lockstep/base/memory_testing.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/stream.h"
#include "lockstep/loader/cuda_memory.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/pinned_memory.h"
#include "lockstep/loader/testing.h"

namespace lockstep {
namespace {

using internal_gpu::CudaApi;
using internal_gpu::CudaCaptureMode;
using internal_gpu::CudaCaptureStatus;
using internal_gpu::CudaContext;
using internal_gpu::CudaEvent;
using internal_gpu::CudaStream;
using internal_gpu::kCudaSuccess;

struct Mode {
  int num_workers;
  Workers workers;
};

class AllocationTest : public testing::TestWithParam<Mode> {};

INSTANTIATE_TEST_SUITE_P(Workers, AllocationTest,
                         testing::Values(Mode{0, Workers::kTbb},
                                         Mode{3, Workers::kTbb},
                                         Mode{3, Workers::kThreads}));

// Counts the allocations of 1,000 steps, after as many other steps.
void ExpectNone(const Mode& mode, std::shared_ptr<BatchMemory> memory) {
  TestJob job;
  job.size = 40000;
  job.batch_size = 16;
  LoaderOptions options;
  options.num_workers = mode.num_workers;
  options.workers = mode.workers;
  options.memory = std::move(memory);
  const auto loader = *Loader::Create(std::make_shared<TestDataset>(job.size),
                                      TestSampler(job), options);
  Batch batch;
  const auto steps = [&] {
    for (int step = 0; step < 1000; ++step) {
      ASSERT_TRUE(*loader->Next(batch));
      if (options.memory == nullptr) continue;
      ASSERT_TRUE(batch.ToDevice(Stream(nullptr)).ok());
    }
  };
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  steps();
  const int64_t before = Allocations();
  steps();
  EXPECT_EQ(Allocations() - before, 0);
}

TEST_P(AllocationTest, NoneInSteadyState) { ExpectNone(GetParam(), nullptr); }

// A driver that does nothing, and so allocates nothing.
CudaApi IdleDriver() {
  CudaApi cuda{};
  cuda.DeviceGetCount = [](int* count) {
    *count = 1;
    return kCudaSuccess;
  };
  cuda.DeviceGet = [](int*, int) { return kCudaSuccess; };
  cuda.DevicePrimaryCtxRetain = [](CudaContext**, int) { return kCudaSuccess; };
  cuda.DevicePrimaryCtxRelease = [](int) { return kCudaSuccess; };
  cuda.CtxPushCurrent = [](CudaContext*) { return kCudaSuccess; };
  cuda.CtxPopCurrent = [](CudaContext**) { return kCudaSuccess; };
  cuda.StreamCreate = [](CudaStream** stream, unsigned) {
    static char place;
    *stream = reinterpret_cast<CudaStream*>(&place);
    return kCudaSuccess;
  };
  cuda.StreamDestroy = [](CudaStream*) { return kCudaSuccess; };
  cuda.StreamWaitEvent = [](CudaStream*, CudaEvent*, unsigned) {
    return kCudaSuccess;
  };
  cuda.StreamIsCapturing = [](CudaStream*, CudaCaptureStatus*) {
    return kCudaSuccess;
  };
  cuda.ThreadExchangeStreamCaptureMode = [](CudaCaptureMode*) {
    return kCudaSuccess;
  };
  cuda.EventCreate = [](CudaEvent**, unsigned) { return kCudaSuccess; };
  cuda.EventDestroy = [](CudaEvent*) { return kCudaSuccess; };
  cuda.EventRecord = [](CudaEvent*, CudaStream*) { return kCudaSuccess; };
  cuda.EventSynchronize = [](CudaEvent*) { return kCudaSuccess; };
  cuda.MemAlloc = [](void**, size_t) { return kCudaSuccess; };
  cuda.MemHostAlloc = [](void** memory, size_t bytes, unsigned) {
    *memory = std::aligned_alloc(64, bytes);
    return kCudaSuccess;
  };
  cuda.MemFreeHost = [](void* memory) {
    std::free(memory);
    return kCudaSuccess;
  };
  cuda.MemcpyAsync = [](void*, const void*, size_t, CudaStream*) {
    return kCudaSuccess;
  };
  return cuda;
}

TEST_P(AllocationTest, NoneWithADevice) {
  const CudaApi cuda = IdleDriver();
  ExpectNone(GetParam(), *internal_loader::MakeCudaMemory(cuda, {}));
}

}  // namespace
}  // namespace lockstep
