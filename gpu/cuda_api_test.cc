#include "lockstep/gpu/cuda_api.h"

#include <dlfcn.h>
#include <unistd.h>

#include <string>
#include <thread>  // NOLINT: one has its mode

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_gpu {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kFake[] = "gpu/libfake_cuda.so";

void Set(const char* name, long long value) {
  const auto set = reinterpret_cast<void (*)(const char*, long long)>(
      dlsym(dlopen(kFake, RTLD_NOW | RTLD_LOCAL), "FakeGpuSet"));
  ASSERT_NE(set, nullptr);
  set(name, value);
}

auto IsUnavailable(const std::string& file, const std::string& what) {
  return StatusIs(
      absl::StatusCode::kUnavailable,
      AllOf(HasSubstr(file), HasSubstr(what), HasSubstr("NVIDIA's driver")));
}

TEST(LoadCuda, SaysThatThereIsNoDriver) {
  EXPECT_THAT(
      LoadCuda("/nowhere/libcuda.so.1"),
      IsUnavailable("/nowhere/libcuda.so.1", "No such file or directory"));
  Set("no_driver", 1);
  EXPECT_THAT(LoadCuda(kFake),
              IsUnavailable(kFake,
                            " failed: CUDA_ERROR_NO_DEVICE (100), "
                            "no CUDA-capable device is detected"));
  Set("no_driver", 0);
}

TEST(LoadCuda, TakesAStandInForNoDriver) {
  Set("init_error", kCudaStubLibrary);
  EXPECT_THAT(LoadCuda(kFake), IsUnavailable(kFake, "cuInit of "));
  Set("init_error", 0);
}

TEST(LoadCuda, TakesABrokenDriverForNoMissingOne) {
  // The driver after a fork, a system that is not ready, and versions that
  // differ.
  for (const CudaResult error : {kCudaNotInitialized, 802, 803}) {
    Set("init_error", error);
    EXPECT_THAT(
        LoadCuda(kFake),
        StatusIs(
            absl::StatusCode::kInternal,
            AllOf(HasSubstr(absl::StrCat("cuInit of ", kFake, " failed: ")),
                  HasSubstr(absl::StrCat("(", error, ")")))));
  }
  Set("init_error", kCudaOutOfMemory);
  EXPECT_THAT(LoadCuda(kFake), StatusIs(absl::StatusCode::kResourceExhausted,
                                        HasSubstr("OUT_OF_MEMORY")));
  Set("init_error", 0);
}

TEST(LoadCuda, SaysThatThereIsNoDevice) {
  Set("device_count", 0);
  EXPECT_THAT(LoadCuda(kFake), IsUnavailable(kFake, "knows no device"));
  Set("device_count", 8);
}

TEST(LoadCuda, NamesTheFunctionThatIsMissing) {
  EXPECT_THAT(LoadCuda("gpu/libfake_without_functions.so"),
              IsUnavailable("libfake_without_functions.so",
                            "undefined symbol: cuInit"));
}

TEST(LoadCuda, LoadsOnceAndInitializes) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const CudaApi* const cuda, LoadCuda(kFake));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const CudaApi* const again, LoadCuda(kFake));
  EXPECT_EQ(cuda, again);
  CudaContext* context = nullptr;
  EXPECT_EQ(cuda->DevicePrimaryCtxRetain(&context, 0), kCudaSuccess);
  EXPECT_EQ(cuda->DevicePrimaryCtxRelease(0), kCudaSuccess);
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "cuInit"), nullptr);
}

TEST(CaptureMode, IsOfOneThread) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const CudaApi* const cuda, LoadCuda(kFake));
  CudaCaptureMode mode = CudaCaptureMode::kThreadLocal;
  EXPECT_EQ(cuda->ThreadExchangeStreamCaptureMode(&mode), kCudaSuccess);
  EXPECT_EQ(mode, CudaCaptureMode::kGlobal);
  std::thread([&] {
    CudaCaptureMode other = CudaCaptureMode::kRelaxed;
    EXPECT_EQ(cuda->ThreadExchangeStreamCaptureMode(&other), kCudaSuccess);
    EXPECT_EQ(other, CudaCaptureMode::kGlobal);
  }).join();
  EXPECT_EQ(cuda->ThreadExchangeStreamCaptureMode(&mode), kCudaSuccess);
  EXPECT_EQ(mode, CudaCaptureMode::kThreadLocal);
}

// The CUDA toolkit's stub of the driver has all its symbols, but they only
// fail.
TEST(LoadCuda, FindsItsFunctionsInARealLibrary) {
  constexpr char kStub[] = "/usr/local/cuda/lib64/stubs/libcuda.so";
  if (access(kStub, R_OK) != 0) GTEST_SKIP() << "there is no " << kStub;
  EXPECT_THAT(LoadCuda(kStub), IsUnavailable(kStub, "cuInit of "));
}

TEST(CudaStatus, HasCudasWords) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const CudaApi* const cuda, LoadCuda(kFake));
  LOCKSTEP_EXPECT_OK(CudaStatus(*cuda, kCudaSuccess, "cuMemAlloc"));
  EXPECT_THAT(
      CudaStatus(*cuda, kCudaOutOfMemory, "cuMemAlloc"),
      StatusIs(absl::StatusCode::kResourceExhausted,
               "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (2), out of "
               "memory"));
  EXPECT_THAT(CudaStatus(*cuda, kCudaInvalidHandle, "cuEventRecord"),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("CUDA_ERROR_INVALID_HANDLE (400)")));
  EXPECT_THAT(CudaStatus(*cuda, 12345, "cuEventRecord"),
              StatusIs(absl::StatusCode::kInternal,
                       "cuEventRecord failed: unknown to this driver (12345)"));
}

}  // namespace
}  // namespace lockstep::internal_gpu
