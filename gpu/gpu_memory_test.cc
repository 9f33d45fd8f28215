#include "lockstep/gpu/gpu_memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/gpu.h"

namespace lockstep::internal_gpu {
namespace {

using testing::Each;
using testing::HasSubstr;

const CudaApi& Fake() {
  static const CudaApi& api = **LoadCuda("gpu/libfake_cuda.so");
  return api;
}

int freed = 0;

// The fake driver, which counts what is freed.
const CudaApi& Counting() {
  static const CudaApi& api = *new CudaApi([] {
    CudaApi counting = Fake();
    counting.MemFree = [](void* memory) {
      ++freed;
      return Fake().MemFree(memory);
    };
    return counting;
  }());
  return api;
}

class AllocateOnTest : public testing::Test {
 protected:
  void SetUp() override {
    freed = 0;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(gpu_, Gpu::Open(Counting(), 1));
  }

  std::shared_ptr<const Gpu> gpu_;
};

TEST_F(AllocateOnTest, TheMemoryIs0) {
  constexpr int64_t kBytes = 100000;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto memory, AllocateOn(gpu_, kBytes));
  std::vector<char> bytes(kBytes, 'x');
  LOCKSTEP_ASSERT_OK(gpu_->InContext([&] {
    return gpu_->Check(
        Fake().MemcpyAsync(bytes.data(), memory.get(), kBytes, nullptr),
        "cuMemcpyAsync");
  }));
  EXPECT_THAT(bytes, Each(0));
}

TEST_F(AllocateOnTest, TheMemoryKeepsItsDevice) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto memory, AllocateOn(gpu_, 1));
  const std::weak_ptr<const Gpu> gpu = gpu_;
  gpu_ = nullptr;
  EXPECT_FALSE(gpu.expired());
  EXPECT_EQ(freed, 0);
  memory = nullptr;
  EXPECT_EQ(freed, 1);
  EXPECT_TRUE(gpu.expired());
}

TEST_F(AllocateOnTest, ADeviceWithoutEnoughIsNamed) {
  EXPECT_THAT(AllocateOn(gpu_, INT64_MAX),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("cuMemAlloc for device 1")));
  EXPECT_EQ(freed, 0);
}

TEST_F(AllocateOnTest, AForkedProcessDoesNotFree) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto memory, AllocateOn(gpu_, 1));
  const pid_t child = fork();
  if (child == 0) {
    memory = nullptr;
    _exit(freed);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  memory = nullptr;
  EXPECT_EQ(freed, 1);
}

}  // namespace
}  // namespace lockstep::internal_gpu
