#include "lockstep/gpu/gpu.h"

#include <memory>
#include <thread>  // NOLINT: another one captures

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/gpu/capture_testing.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep::internal_gpu {
namespace {

using testing::HasSubstr;

constexpr char kFake[] = "gpu/libfake_cuda.so";

const CudaApi& Cuda() {
  static const CudaApi& cuda = **LoadCuda(kFake);
  return cuda;
}

TEST(Gpu, RefusesOneThatIsNotThere) {
  for (const int ordinal : {-1, 8}) {
    EXPECT_THAT(Gpu::Open(Cuda(), ordinal),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("device should be 0 to 7")));
  }
}

TEST(Gpu, KeepsItsContext) {
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto device, Gpu::Open(Cuda(), 7));
    EXPECT_EQ(device->ordinal(), 7);
  }
  // No reference to the context is left.
  EXPECT_EQ(Cuda().DevicePrimaryCtxRelease(7), kCudaInvalidContext);
}

TEST(Gpu, ItsContextIsCurrentInACallAlone) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto device, Gpu::Open(Cuda(), 3));
  CudaEvent* event = nullptr;
  EXPECT_EQ(Cuda().EventCreate(&event, 0), kCudaInvalidContext);
  LOCKSTEP_EXPECT_OK(device->InContext([&] {
    return device->Check(Cuda().EventCreate(&event, 0), "cuEventCreate");
  }));
  EXPECT_EQ(Cuda().EventDestroy(event), kCudaSuccess);
  EXPECT_THAT(device->InContext([] { return absl::AbortedError("enough"); }),
              StatusIs(absl::StatusCode::kAborted, "enough"));
  EXPECT_EQ(Cuda().EventCreate(&event, 0), kCudaInvalidContext);
}

// ---- Calls during captures.

CudaCaptureMode ExchangeMode(CudaCaptureMode mode) {
  EXPECT_EQ(Cuda().ThreadExchangeStreamCaptureMode(&mode), kCudaSuccess);
  return mode;
}

CudaCaptureMode ModeOfThisThread() {
  const CudaCaptureMode mode = ExchangeMode(CudaCaptureMode::kRelaxed);
  ExchangeMode(mode);
  return mode;
}

TEST(RelaxedCapture, PutsBackTheModeThatWasThere) {
  for (const CudaCaptureMode mode :
       {CudaCaptureMode::kGlobal, CudaCaptureMode::kThreadLocal,
        CudaCaptureMode::kRelaxed}) {
    const CudaCaptureMode usual = ExchangeMode(mode);
    {
      const RelaxedCapture relaxed(Cuda());
      EXPECT_EQ(ModeOfThisThread(), CudaCaptureMode::kRelaxed);
      {
        const RelaxedCapture again(Cuda());
        EXPECT_EQ(ModeOfThisThread(), CudaCaptureMode::kRelaxed);
      }
      EXPECT_EQ(ModeOfThisThread(), CudaCaptureMode::kRelaxed);
    }
    EXPECT_EQ(ModeOfThisThread(), mode);
    ExchangeMode(usual);
  }
}

TEST(RelaxedCapture, LeavesTheModeToADriverThatRefuses) {
  static int calls = 0;
  CudaApi refuses = Cuda();
  refuses.ThreadExchangeStreamCaptureMode = [](CudaCaptureMode*) {
    ++calls;
    return kCudaNotInitialized;
  };
  { const RelaxedCapture relaxed(refuses); }
  EXPECT_EQ(calls, 1);
}

TEST(Gpu, InContextPutsBackTheModeThatWasThere) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto device, Gpu::Open(Cuda(), 3));
  EXPECT_EQ(ModeOfThisThread(), CudaCaptureMode::kGlobal);
  const CudaCaptureMode usual = ExchangeMode(CudaCaptureMode::kThreadLocal);
  EXPECT_THAT(device->InContext([&] {
    EXPECT_EQ(ModeOfThisThread(), CudaCaptureMode::kRelaxed);
    LOCKSTEP_EXPECT_OK(device->InContext([] { return absl::OkStatus(); }));
    EXPECT_EQ(ModeOfThisThread(), CudaCaptureMode::kRelaxed);
    return absl::AbortedError("enough");
  }),
              StatusIs(absl::StatusCode::kAborted, "enough"));
  EXPECT_EQ(ModeOfThisThread(), CudaCaptureMode::kThreadLocal);
  ExchangeMode(usual);
}

// A stream of the device, and an event that this stream has reached.
struct Used {
  explicit Used(const Gpu& of) : device(of) {
    LOCKSTEP_EXPECT_OK(device.InContext([&] {
      EXPECT_EQ(Cuda().StreamCreate(&stream, kCudaStreamNonBlocking),
                kCudaSuccess);
      EXPECT_EQ(Cuda().EventCreate(&event, 0), kCudaSuccess);
      EXPECT_EQ(Cuda().EventRecord(event, stream), kCudaSuccess);
      return device.Check(Cuda().StreamSynchronize(stream),
                          "cuStreamSynchronize");
    }));
  }
  ~Used() {
    const RelaxedCapture relaxed(Cuda());
    EXPECT_EQ(Cuda().EventDestroy(event), kCudaSuccess);
    EXPECT_EQ(Cuda().StreamDestroy(stream), kCudaSuccess);
  }

  const Gpu& device;
  CudaStream* stream = nullptr;
  CudaEvent* event = nullptr;
};

template <typename Run>
void OnAnotherThread(const Run& run) {
  std::thread(run).join();
}

TEST(Gpu, GoesOnBesideACapture) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto device, Gpu::Open(Cuda(), 3));
  const Used captured(*device), other(*device);
  Capture capture(kFake, captured.stream);
  const auto use = [&] {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto again, Gpu::Open(Cuda(), 3));
    const Used used(*again);
    const RelaxedCapture relaxed(Cuda());
    EXPECT_EQ(Cuda().EventQuery(other.event), kCudaSuccess);
  };
  use();
  OnAnotherThread(use);
  EXPECT_EQ(capture.End(), kCudaSuccess);
}

// Shows that the fake detects what the tests above and those of the loader
// test.
TEST(Capture, IsBrokenByACallThatIsNotRelaxed) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto device, Gpu::Open(Cuda(), 3));
  const Used captured(*device), other(*device);
  const auto query = [&] {
    EXPECT_EQ(Cuda().EventQuery(other.event), kCudaCaptureUnsupported);
  };
  Capture here(kFake, captured.stream);
  query();
  EXPECT_EQ(here.End(), kCudaCaptureInvalidated);
  Capture there(kFake, captured.stream);
  OnAnotherThread(query);
  EXPECT_EQ(there.End(), kCudaCaptureInvalidated);
  // In this mode, captures of other threads forbid the thread nothing.
  Capture minded(kFake, captured.stream);
  OnAnotherThread([&] {
    ExchangeMode(CudaCaptureMode::kThreadLocal);
    EXPECT_EQ(Cuda().EventQuery(other.event), kCudaSuccess);
  });
  EXPECT_EQ(minded.End(), kCudaSuccess);
}

TEST(Capture, IsOfAStreamAndOfWhatWaitsForIt) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto device, Gpu::Open(Cuda(), 3));
  const Used captured(*device), other(*device);
  const auto status = [](const Used& used) {
    CudaCaptureStatus found = CudaCaptureStatus::kNone;
    EXPECT_EQ(Cuda().StreamIsCapturing(used.stream, &found), kCudaSuccess);
    return found;
  };
  EXPECT_EQ(status(captured), CudaCaptureStatus::kNone);
  Capture capture(kFake, captured.stream);
  EXPECT_EQ(status(captured), CudaCaptureStatus::kActive);
  EXPECT_EQ(status(other), CudaCaptureStatus::kNone);
  EXPECT_EQ(Cuda().EventRecord(captured.event, captured.stream), kCudaSuccess);
  EXPECT_EQ(Cuda().StreamWaitEvent(other.stream, captured.event, 0),
            kCudaSuccess);
  EXPECT_EQ(status(other), CudaCaptureStatus::kActive);
  // A captured stream can't wait for an event from outside of the capture.
  EXPECT_EQ(Cuda().StreamWaitEvent(captured.stream, other.event, 0),
            kCudaCaptureIsolation);
  EXPECT_EQ(status(captured), CudaCaptureStatus::kInvalidated);
  EXPECT_EQ(capture.End(), kCudaCaptureInvalidated);
  EXPECT_EQ(status(captured), CudaCaptureStatus::kNone);
}

TEST(Gpu, NamesItselfInErrors) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto device, Gpu::Open(Cuda(), 3));
  LOCKSTEP_EXPECT_OK(device->Check(kCudaSuccess, "cuMemAlloc"));
  EXPECT_THAT(device->Check(kCudaOutOfMemory, "cuMemAlloc"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("cuMemAlloc for device 3 failed: ")));
}

}  // namespace
}  // namespace lockstep::internal_gpu
