// These tests average gradients that are on devices: those of the fake GPU.
#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>  // NOLINT: a host function that holds a stream up
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/stream.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/gradients/on_devices.h"

namespace lockstep {
namespace {

using internal_gradients::FakeCuda;
using internal_gradients::Gate;
using internal_gradients::kFakeGpu;
using internal_gradients::OnDevice;
using internal_gradients::OnRanks;
using internal_gradients::SetFakeGpu;
using internal_gradients::Weight;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(GradientsOnDevice, AreMeans) {
  EXPECT_THAT(
      OnRanks(2,
              [](const OnDevice& here) -> absl::Status {
                LOCKSTEP_ASSIGN_OR_RETURN(const auto gradients, here.Make(4));
                LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
                here.Write(*gradients, here.rank() == 0 ? 3.0F : 11.0F);
                LOCKSTEP_RETURN_IF_ERROR(
                    gradients->Average(Weight(1 + 2 * here.rank())).status());
                LOCKSTEP_RETURN_IF_ERROR(gradients->Await());
                EXPECT_EQ(here.Read<float>(gradients->views()[0].gradient.data),
                          14.0F / 4);
                return absl::OkStatus();
              }),
      Each(IsOk()));
}

// The ranks allocate memory together, but rank 0 has memory of its own.
TEST(GradientsOnDevice, ARankMayGiveMemoryWhereOthersDoNot) {
  const auto ended = OnRanks(2, [](const OnDevice& here) -> absl::Status {
    Parameter parameter = {"w", here.Allocate(4)};
    if (here.rank() == 0) parameter.gradient = here.Allocate(4);
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto gradients,
        Gradients::Create(here.group(), {parameter}, here.options()));
    LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
    here.Write(*gradients, here.rank() == 0 ? 3.0F : 5.0F);
    LOCKSTEP_RETURN_IF_ERROR(gradients->Average(Weight(1)).status());
    LOCKSTEP_RETURN_IF_ERROR(gradients->Await());
    EXPECT_EQ(here.Read<float>(gradients->views()[0].gradient.data), 4);
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

// The zeros of a skipped step are queued on the stream.
TEST(GradientsOnDevice, AwaitWaitsForASkippedStep) {
  EXPECT_THAT(
      OnRanks(
          1,
          [](const OnDevice& here) -> absl::Status {
            LOCKSTEP_ASSIGN_OR_RETURN(const auto gradients, here.Make(4));
            LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
            here.Write(*gradients, 1.0F);
            Gate gate(here.stream());
            LOCKSTEP_RETURN_IF_ERROR(gradients->Average(Weight(0)).status());
            std::thread opener([&gate] { gate.Open(); });
            const absl::Status awaited = gradients->Await();
            opener.join();
            LOCKSTEP_RETURN_IF_ERROR(awaited);
            EXPECT_EQ(here.Read<float>(gradients->views()[0].gradient.data), 0);
            return absl::OkStatus();
          }),
      Each(IsOk()));
}

// So are the copies to the trainer's memory.
TEST(GradientsOnDevice, AwaitWaitsForTheTrainersMemory) {
  EXPECT_THAT(
      OnRanks(
          1,
          [](const OnDevice& here) -> absl::Status {
            constexpr int64_t kCount = 1 << 22;
            std::vector<Parameter> parameters;
            for (const char* const name : {"a", "b"}) {
              parameters.push_back(
                  {name, here.Allocate(kCount), here.Allocate(kCount)});
            }
            LOCKSTEP_ASSIGN_OR_RETURN(
                const auto gradients,
                Gradients::Create(here.group(), parameters, here.options()));
            const auto* const last =
                static_cast<float*>(gradients->views()[1].gradient.data) +
                kCount - 1;
            const std::vector<float> twos(kCount, 2);
            for (int step = 0; step < 20; ++step) {
              LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
              EXPECT_EQ(FakeCuda().MemcpyAsync(
                            gradients->views()[1].gradient.data, twos.data(),
                            kCount * sizeof(float), here.stream()),
                        internal_gpu::kCudaSuccess);
              LOCKSTEP_RETURN_IF_ERROR(gradients->Average(Weight(2)).status());
              LOCKSTEP_RETURN_IF_ERROR(gradients->Await());
              EXPECT_EQ(here.Read<float>(last), 1);
            }
            return absl::OkStatus();
          }),
      Each(IsOk()));
}

// 1 / weight has no exact f16 there.
TEST(GradientsOnDevice, ALargeWeightIsRefusedForF16) {
  EXPECT_THAT(
      OnRanks(
          2,
          [](const OnDevice& here) -> absl::Status {
            LOCKSTEP_ASSIGN_OR_RETURN(const auto gradients,
                                      here.Make(1, DType::kF16));
            LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
            EXPECT_THAT(gradients->Average(Weight(8193)),
                        StatusIs(absl::StatusCode::kOutOfRange,
                                 AllOf(HasSubstr("16386"), HasSubstr("16384"),
                                       HasSubstr("gradient_dtype"))));
            LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
            here.Write(*gradients, Float16(8192));
            LOCKSTEP_RETURN_IF_ERROR(gradients->Average(Weight(8192)).status());
            LOCKSTEP_RETURN_IF_ERROR(gradients->Await());
            EXPECT_EQ(static_cast<float>(here.Read<Float16>(
                          gradients->views()[0].gradient.data)),
                      1);
            return absl::OkStatus();
          }),
      Each(IsOk()));
}

// A rank that can't launch tells the others, which wait for it.
TEST(GradientsOnDevice, ARankWhoseStreamIsCapturedIsTold) {
  const std::vector<absl::Status> ended =
      OnRanks(2, [](const OnDevice& here) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(const auto gradients, here.Make(4));
        LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
        EXPECT_EQ(FakeCuda().StreamSynchronize(here.stream()),
                  internal_gpu::kCudaSuccess);
        if (here.rank() == 0) {
          void* const library = dlopen(kFakeGpu, RTLD_NOW);
          const auto begin_capture =
              reinterpret_cast<int (*)(internal_gpu::CudaStream*, int)>(
                  dlsym(library, "cuStreamBeginCapture_v2"));
          EXPECT_EQ(begin_capture(here.stream(), 2), 0);
        }
        LOCKSTEP_RETURN_IF_ERROR(gradients->Average(Weight(1)).status());
        return gradients->Await();
      });
  EXPECT_THAT(ended[0], StatusIs(absl::StatusCode::kUnimplemented,
                                 HasSubstr("being captured")));
  EXPECT_THAT(ended[1], StatusIs(absl::StatusCode::kAborted,
                                 HasSubstr("rank 0 aborted")));
}

TEST(GradientsOnDevice, MemoryThatIsNotThereIsToldInBytes) {
  EXPECT_THAT(OnRanks(1,
                      [](const OnDevice& here) {
                        Buffer huge = here.Allocate(4);
                        huge.count = int64_t{1} << 50;
                        return Gradients::Create(here.group(), {{"w", huge}},
                                                 here.options())
                            .status();
                      }),
              Each(StatusIs(absl::StatusCode::kResourceExhausted,
                            HasSubstr("4503599627370496 bytes"))));
}

TEST(GradientsOnDevice, NoRankWaitsForOneWhoseDeviceIsFull) {
  const auto ended = OnRanks(2, [&](const OnDevice& here) {
    const Parameter parameter = {"w", here.Allocate(1 << 18)};
    absl::Status status = Wait(here.host_group().Barrier());
    if (here.rank() == 0) SetFakeGpu("full_device", 1);
    status.Update(Wait(here.host_group().Barrier()));
    status.Update(
        Gradients::Create(here.group(), {parameter}, here.options()).status());
    return status;
  });
  SetFakeGpu("full_device", -1);
  // A rank may hear of it from another one.
  for (const absl::Status& status : ended) {
    EXPECT_THAT(status.message(), AllOf(HasSubstr("1048576 bytes"),
                                        HasSubstr("on rank 1: cuMemAlloc")));
  }
}

TEST(GradientsOnDevice, AGroupOfOtherMemoryIsRefused) {
  const auto ended = OnRanks(2, [](const OnDevice& here) -> absl::Status {
    // A rank may hear of it from the other one.
    EXPECT_THAT(Gradients::Create(here.host_group(), {{"w", here.Allocate(4)}},
                                  here.options())
                    .status()
                    .message(),
                AllOf(HasSubstr("are on CUDA device"),
                      HasSubstr("moves memory of the host"),
                      HasSubstr("backend nccl")));
    std::vector<float> values(4);
    EXPECT_THAT(
        Gradients::Create(here.group(), {{"w", lockstep::BufferOf(values)}},
                          here.options())
            .status()
            .message(),
        AllOf(HasSubstr("are on the host"),
              HasSubstr("moves memory of CUDA device"),
              HasSubstr("backend of the host")));
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST(GradientsOnDevice, TheGroupForTheHostIsAskedFor) {
  const std::vector<absl::Status> ended = OnRanks(2, [](const OnDevice& here) {
    GradientsOptions options = here.options();
    options.host_group = nullptr;
    return Gradients::Create(here.group(), {{"w", here.Allocate(4)}}, options)
        .status();
  });
  for (const absl::Status& status : ended) {
    EXPECT_THAT(status.message(),
                HasSubstr("GradientsOptions::host_group should be a group"));
  }
}

TEST(GradientsOnDevice, AStreamOfEachThreadIsRefused) {
  EXPECT_THAT(
      OnRanks(1,
              [](const OnDevice& here) {
                // CUDA's handle of it is the number 2.
                void* handle = nullptr;
                const uintptr_t number = internal_gpu::kCudaPerThreadStream;
                std::memcpy(&handle, &number, sizeof(handle));
                GradientsOptions options = here.options();
                options.stream = Stream(handle);
                return Gradients::Create(here.group(),
                                         {{"w", here.Allocate(4)}}, options)
                    .status();
              }),
      Each(StatusIs(absl::StatusCode::kInvalidArgument,
                    HasSubstr("cudaStreamPerThread"))));
}

}  // namespace
}  // namespace lockstep
