// These tests average gradients that are on devices: those of the fake GPU.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
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
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/world.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/gpu.h"
#include "lockstep/gpu/stream.h"
#include "lockstep/gradients/gradients.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr char kLibrary[] = "collective/nccl/libfake_gpu.so";

const internal_gpu::CudaApi& Cuda() {
  static const internal_gpu::CudaApi& api = **internal_gpu::LoadCuda(kLibrary);
  return api;
}

// An OnDevice has what a test uses on a rank, whose device has its number.
// Memory is freed at the end of the process.
// Thread-safety: thread-compatible.
class OnDevice {
 public:
  OnDevice(int rank, Communicator& group, Communicator& host_group)
      : rank_(rank), group_(group), host_group_(host_group) {
    EXPECT_EQ(Cuda().StreamCreate(&stream_, 1), internal_gpu::kCudaSuccess);
    EXPECT_EQ(Cuda().StreamCreate(&other_, 1), internal_gpu::kCudaSuccess);
  }

  int rank() const { return rank_; }
  Communicator& group() const { return group_; }
  Communicator& host_group() const { return host_group_; }
  internal_gpu::CudaStream* stream() const { return stream_; }

  GradientsOptions options() const {
    GradientsOptions options;
    options.stream = Stream(stream_);
    options.host_group = &host_group_;
    options.cuda_library = kLibrary;
    return options;
  }

  Buffer Allocate(int64_t count, DType dtype = DType::kF32) const {
    void* memory = nullptr;
    EXPECT_EQ(Cuda().MemAlloc(&memory, count * SizeOf(dtype)),
              internal_gpu::kCudaSuccess);
    return {memory, count, dtype, {Device::Kind::kCuda, rank_}};
  }

  absl::StatusOr<std::unique_ptr<Gradients>> Make(
      int64_t count, DType dtype = DType::kF32) const {
    Parameter parameter = {"w", Allocate(count, dtype)};
    parameter.gradient_dtype = dtype;
    return Gradients::Create(group_, {parameter}, options());
  }

  // Writes an element of the first gradient behind the work of the stream, or
  // reads it on another stream, which does not wait for that work.
  template <typename T>
  void Write(const Gradients& gradients, T value) const {
    EXPECT_EQ(Cuda().MemcpyAsync(gradients.views()[0].gradient.data, &value,
                                 sizeof(value), stream_),
              internal_gpu::kCudaSuccess);
    EXPECT_EQ(Cuda().StreamSynchronize(stream_), internal_gpu::kCudaSuccess);
  }
  template <typename T>
  T Read(const void* from) const {
    T value;
    EXPECT_EQ(Cuda().MemcpyAsync(&value, from, sizeof(value), other_),
              internal_gpu::kCudaSuccess);
    EXPECT_EQ(Cuda().StreamSynchronize(other_), internal_gpu::kCudaSuccess);
    return value;
  }

 private:
  const int rank_;
  Communicator& group_;
  Communicator& host_group_;
  internal_gpu::CudaStream* stream_ = nullptr;
  internal_gpu::CudaStream* other_ = nullptr;
};

// Returns how each rank ended.
std::vector<absl::Status> OnRanks(
    int size, const std::function<absl::Status(const OnDevice&)>& rank) {
  return LocalWorld(size).Run([&](World& world) -> absl::Status {
    GroupOptions options;
    options.name = "device";
    options.backend = "nccl";
    options.nccl.device = world.rank();
    options.nccl.nccl_library = options.nccl.cuda_library = kLibrary;
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup(options));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto host_group, world.MakeGroup());
    LOCKSTEP_ASSIGN_OR_RETURN(const auto gpu,
                              internal_gpu::Gpu::Open(Cuda(), world.rank()));
    return gpu->InContext(
        [&] { return rank(OnDevice(world.rank(), *group, *host_group)); });
  });
}

StepInput Weight(int64_t weight) {
  StepInput input;
  input.weight = weight;
  return input;
}

// A Gate holds a stream up until it is opened.
// Thread-safety: thread-safe.
class Gate {
 public:
  explicit Gate(internal_gpu::CudaStream* stream) {
    const auto wait = [](void* gate) {
      while (!static_cast<Gate*>(gate)->open_) std::this_thread::yield();
    };
    EXPECT_EQ(Cuda().LaunchHostFunc(stream, wait, this),
              internal_gpu::kCudaSuccess);
  }
  void Open() { open_ = true; }

 private:
  std::atomic<bool> open_{false};
};

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
              EXPECT_EQ(Cuda().MemcpyAsync(gradients->views()[1].gradient.data,
                                           twos.data(), kCount * sizeof(float),
                                           here.stream()),
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
        EXPECT_EQ(Cuda().StreamSynchronize(here.stream()),
                  internal_gpu::kCudaSuccess);
        if (here.rank() == 0) {
          void* const library = dlopen(kLibrary, RTLD_NOW);
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
  const auto set = reinterpret_cast<void (*)(const char*, long long)>(
      dlsym(dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL), "FakeGpuSet"));
  ASSERT_NE(set, nullptr);
  const auto ended = OnRanks(2, [&](const OnDevice& here) {
    const Parameter parameter = {"w", here.Allocate(4)};
    absl::Status status = Wait(here.host_group().Barrier());
    if (here.rank() == 0) set("full_device", 1);
    status.Update(Wait(here.host_group().Barrier()));
    status.Update(
        Gradients::Create(here.group(), {parameter}, here.options()).status());
    return status;
  });
  set("full_device", -1);
  EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kResourceExhausted,
                                   HasSubstr("on rank 1: cuMemAlloc"))));
}

TEST(GradientsOnDevice, AGroupOfTheHostIsRefused) {
  const auto ended = OnRanks(2, [](const OnDevice& here) {
    return Gradients::Create(here.host_group(), {{"w", here.Allocate(4)}},
                             here.options())
        .status();
  });
  EXPECT_THAT(
      ended, Each(StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr("the parameters are on CUDA device"),
                                 HasSubstr("moves memory of the host"),
                                 HasSubstr("backend nccl")))));
}

TEST(GradientsOnDevice, OverlapIsRefusedOrLeftOut) {
  const auto ended = OnRanks(2, [](const OnDevice& here) -> absl::Status {
    GradientsOptions options = here.options();
    options.overlap = GradientsOptions::Overlap::kOn;
    EXPECT_THAT(
        Gradients::Create(here.group(), {{"w", here.Allocate(4)}}, options),
        StatusIs(absl::StatusCode::kUnimplemented,
                 HasSubstr("overlap needs gradients on the host")));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto gradients, here.Make(4));
    EXPECT_TRUE(gradients->overlap().is_final);
    EXPECT_THAT(gradients->overlap().why, HasSubstr("on a device"));
    LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
    gradients->MarkReady(0);
    LOCKSTEP_RETURN_IF_ERROR(gradients->Average(Weight(1)).status());
    EXPECT_FALSE(gradients->overlap().on);
    return gradients->Await();
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
