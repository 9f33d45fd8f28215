// The helpers of tests of gradients on devices: ranks that are threads, each
// with a device of the fake GPU.
//
//   const auto ended = OnRanks(2, [](const OnDevice& here) -> absl::Status {
//     LOCKSTEP_ASSIGN_OR_RETURN(const auto gradients, here.Make(4));
//     ...
//   });
#ifndef LOCKSTEP_GRADIENTS_ON_DEVICES_H_
#define LOCKSTEP_GRADIENTS_ON_DEVICES_H_

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>  // NOLINT: a host function that holds a stream up
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/world.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/gpu.h"
#include "lockstep/gpu/stream.h"
#include "lockstep/gradients/gradients.h"

namespace lockstep::internal_gradients {

inline constexpr char kFakeGpu[] = "collective/nccl/libfake_gpu.so";

inline const internal_gpu::CudaApi& FakeCuda() {
  static const internal_gpu::CudaApi& api = **internal_gpu::LoadCuda(kFakeGpu);
  return api;
}

// Sets a switch of the fake GPU.
inline void SetFakeGpu(const char* name, long long value) {
  const auto set = reinterpret_cast<void (*)(const char*, long long)>(
      dlsym(dlopen(kFakeGpu, RTLD_NOW | RTLD_LOCAL), "FakeGpuSet"));
  set(name, value);
}

// An OnDevice has what a test uses on a rank, whose device has its number.
// Memory is freed at the end of the process.
// Thread-safety: thread-compatible.
class OnDevice {
 public:
  OnDevice(int rank, Communicator& group, Communicator& host_group)
      : rank_(rank), group_(group), host_group_(host_group) {
    EXPECT_EQ(FakeCuda().StreamCreate(&stream_, 1), internal_gpu::kCudaSuccess);
    EXPECT_EQ(FakeCuda().StreamCreate(&other_, 1), internal_gpu::kCudaSuccess);
  }

  int rank() const { return rank_; }
  Communicator& group() const { return group_; }
  Communicator& host_group() const { return host_group_; }
  internal_gpu::CudaStream* stream() const { return stream_; }

  GradientsOptions options() const {
    GradientsOptions options;
    options.stream = Stream(stream_);
    options.host_group = &host_group_;
    options.cuda_library = kFakeGpu;
    return options;
  }

  Buffer Allocate(int64_t count, DType dtype = DType::kF32) const {
    void* memory = nullptr;
    EXPECT_EQ(FakeCuda().MemAlloc(&memory, count * SizeOf(dtype)),
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
    EXPECT_EQ(FakeCuda().MemcpyAsync(gradients.views()[0].gradient.data, &value,
                                     sizeof(value), stream_),
              internal_gpu::kCudaSuccess);
    EXPECT_EQ(FakeCuda().StreamSynchronize(stream_),
              internal_gpu::kCudaSuccess);
  }
  template <typename T>
  T Read(const void* from) const {
    T value;
    EXPECT_EQ(FakeCuda().MemcpyAsync(&value, from, sizeof(value), other_),
              internal_gpu::kCudaSuccess);
    EXPECT_EQ(FakeCuda().StreamSynchronize(other_), internal_gpu::kCudaSuccess);
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
inline std::vector<absl::Status> OnRanks(
    int size, const std::function<absl::Status(const OnDevice&)>& rank) {
  return LocalWorld(size).Run([&](World& world) -> absl::Status {
    GroupOptions options;
    options.name = "device";
    options.backend = "nccl";
    options.nccl.device = world.rank();
    options.nccl.nccl_library = options.nccl.cuda_library = kFakeGpu;
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup(options));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto host_group, world.MakeGroup());
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto gpu, internal_gpu::Gpu::Open(FakeCuda(), world.rank()));
    return gpu->InContext(
        [&] { return rank(OnDevice(world.rank(), *group, *host_group)); });
  });
}

inline StepInput Weight(int64_t weight) {
  StepInput input;
  input.weight = weight;
  return input;
}

// A Gate holds a stream up until it is opened.
// Thread-safety: thread-safe.
class Gate {
 public:
  explicit Gate(internal_gpu::CudaStream* stream) : stream_(stream) {
    const auto wait = [](void* gate) {
      while (!static_cast<Gate*>(gate)->open_) std::this_thread::yield();
    };
    EXPECT_EQ(FakeCuda().LaunchHostFunc(stream, wait, this),
              internal_gpu::kCudaSuccess);
  }
  ~Gate() {
    Open();
    EXPECT_EQ(FakeCuda().StreamSynchronize(stream_),
              internal_gpu::kCudaSuccess);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void Open() { open_ = true; }

 private:
  internal_gpu::CudaStream* const stream_;
  std::atomic<bool> open_{false};
};

}  // namespace lockstep::internal_gradients

#endif  // LOCKSTEP_GRADIENTS_ON_DEVICES_H_
