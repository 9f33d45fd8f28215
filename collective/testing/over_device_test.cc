#include "lockstep/collective/testing/over_device.h"

#include <atomic>
#include <cstddef>
#include <functional>
#include <future>  // NOLINT: promises
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/backends.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep {
namespace {

using internal_gpu::CudaApi;
using internal_gpu::CudaResult;
using internal_gpu::kCudaOutOfMemory;
using internal_gpu::LoadCuda;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr char kFake[] = "collective/nccl/libfake_gpu.so";

// ---- The fake CUDA, and the memory that it has given out.

const CudaApi& Fake() {
  static const CudaApi& fake = **LoadCuda(kFake);
  return fake;
}

std::atomic<int> blocks_held{0};
std::atomic<bool> no_memory_left{false};

CudaResult CountedAlloc(void** memory, size_t bytes) {
  if (no_memory_left) return kCudaOutOfMemory;
  ++blocks_held;
  return Fake().MemAlloc(memory, bytes);
}

CudaResult CountedFree(void* memory) {
  --blocks_held;
  return Fake().MemFree(memory);
}

const CudaApi& Cuda() {
  static const CudaApi& counted = *[] {
    auto* const api = new CudaApi(Fake());
    api->MemAlloc = CountedAlloc;
    api->MemFree = CountedFree;
    return api;
  }();
  return counted;
}

// Calls `run` for each of `size` ranks, with a group over fake GPUs.
void OnDevices(int size, const std::function<void(Communicator& group)>& run) {
  const auto ended = LocalWorld(size).Run([&run](World& world) -> absl::Status {
    GroupOptions options;
    options.backend = "nccl";
    NcclOptions nccl;
    nccl.device = world.rank();
    nccl.nccl_library = nccl.cuda_library = kFake;
    options.transport = OverDevice(
        [nccl](const TransportContext& context) {
          return internal_collective::MakeTransport("nccl", context, nccl);
        },
        &Cuda(), world.rank());
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup(options));
    run(*group);
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
  EXPECT_EQ(blocks_held, 0);
}

// ---- Tests. world_test has the suite of conformance.

TEST(OverDevice, SaysWhichDeviceThereIsNot) {
  const TransportFactory make = OverDevice(nullptr, &Cuda(), 99);
  EXPECT_THAT(make(TransportContext()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("device should be 0 to 7"),
                             HasSubstr("device=99"))));
}

TEST(OverDevice, CopiesBackWhatWasDroppedBefore) {
  OnDevices(2, [](Communicator& group) {
    std::vector<float> values(100, 1);
    const Buffer buffer = BufferOf(values);
    LOCKSTEP_ASSERT_OK(
        group.AllReduce(buffer, buffer, ReduceOp::kSum).status());
    LOCKSTEP_ASSERT_OK(Wait(group.Barrier()));
    EXPECT_THAT(values, Each(2));
  });
}

TEST(OverDevice, MovesMessages) {
  OnDevices(2, [](Communicator& group) {
    std::vector<float> in(3, 1), out(3);
    const int other = 1 - group.rank();
    LOCKSTEP_ASSERT_OK(
        Wait(group.SendRecv(BufferOf(in), other, BufferOf(out), other)));
    EXPECT_THAT(out, Each(1));
  });
}

TEST(OverDevice, CopiesBackNothingOfWhatFailed) {
  std::promise<void> issued;
  OnDevices(2, [&issued](Communicator& group) {
    if (group.rank() == 1) {
      issued.get_future().wait();
      return group.Abort(absl::InternalError("NaN"));
    }
    std::vector<float> in(2, 1), out(2, 5);
    const absl::StatusOr<Work> work =
        group.AllReduce(BufferOf(in), BufferOf(out), ReduceOp::kSum);
    issued.set_value();
    EXPECT_THAT(Wait(work), StatusIs(absl::StatusCode::kAborted,
                                     HasSubstr("INTERNAL: NaN")));
    EXPECT_THAT(out, Each(5));
  });
}

TEST(OverDevice, UsesMemoryAgain) {
  OnDevices(1, [](Communicator& group) {
    std::vector<float> in(100, 1), out(100);
    const auto reduce = [&](std::vector<float>& to) {
      return Wait(group.AllReduce(BufferOf(in), BufferOf(to), ReduceOp::kSum));
    };
    for (int i = 0; i < 2; ++i) {
      LOCKSTEP_ASSERT_OK(reduce(in));
      EXPECT_LE(blocks_held, 2) << "in place, there is one block";
    }
    for (int i = 0; i < 2; ++i) {
      LOCKSTEP_ASSERT_OK(reduce(out));
      EXPECT_LE(blocks_held, 4);
    }
  });
}

TEST(OverDevice, AnOperationThatFindsNoMemoryWasNotIssued) {
  OnDevices(1, [](Communicator& group) {
    std::vector<float> values(2, 1);
    const Buffer buffer = BufferOf(values);
    no_memory_left = true;
    EXPECT_THAT(group.AllReduce(buffer, buffer, ReduceOp::kSum),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr("cuMemAlloc for device 0")));
    no_memory_left = false;
    LOCKSTEP_EXPECT_OK(Wait(group.Barrier()));
    // The refused call took no number, either.
    EXPECT_EQ(group.RecentOperations().back().sequence, 1u);
  });
}

}  // namespace
}  // namespace lockstep
