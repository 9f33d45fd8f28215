// Tests memory of groups of nccl, on the fake GPU.

#include <dlfcn.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/group_memory.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/world.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/gpu.h"

namespace lockstep {
namespace {

using internal_gpu::kCudaSuccess;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr int64_t kCount = 1 << 17;
constexpr int64_t kBytes = kCount * sizeof(float);

constexpr char kFakeGpu[] = "collective/nccl/libfake_gpu.so";

const internal_gpu::CudaApi& FakeCuda() {
  static const internal_gpu::CudaApi& api = **internal_gpu::LoadCuda(kFakeGpu);
  return api;
}

// Returns a function that gpu/fake_gpu.h describes.
template <typename Function>
Function* InFakeGpu(const char* name) {
  return reinterpret_cast<Function*>(
      dlsym(dlopen(kFakeGpu, RTLD_NOW | RTLD_LOCAL), name));
}

void SetFakeGpu(const char* name, long long value) {
  InFakeGpu<void(const char*, long long)>("FakeGpuSet")(name, value);
}

// Returns how many pieces of memory the devices have.
long long Pieces() { return InFakeGpu<long long()>("FakeGpuPieces")(); }

// Each test leaves no memory behind.
class NcclAllocate : public testing::Test {
 protected:
  NcclAllocate() { FakeCuda(); }
  ~NcclAllocate() override { EXPECT_EQ(Pieces(), before_); }

 private:
  const long long before_ = Pieces();
};

// Calls `rank` on each rank, with a group of nccl, in the context of its
// device. Returns how each ended.
std::vector<absl::Status> OnRanks(
    int size,
    const std::function<absl::Status(std::unique_ptr<Communicator>)>& rank) {
  return LocalWorld(size).Run([&](World& world) -> absl::Status {
    GroupOptions options;
    options.name = "device";
    options.backend = "nccl";
    options.nccl.device = world.rank();
    options.nccl.nccl_library = options.nccl.cuda_library = kFakeGpu;
    LOCKSTEP_ASSIGN_OR_RETURN(auto group, world.MakeGroup(options));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto gpu, internal_gpu::Gpu::Open(FakeCuda(), world.rank()));
    return gpu->InContext([&] { return rank(std::move(group)); });
  });
}

Buffer BufferOf(const GroupMemory& memory, int64_t first = 0) {
  return lockstep::BufferOf(static_cast<float*>(memory.data()) + first, kCount,
                            memory.device());
}

void Copy(void* to, const void* from) {
  EXPECT_EQ(FakeCuda().MemcpyAsync(to, from, kBytes, nullptr), kCudaSuccess);
  EXPECT_EQ(FakeCuda().StreamSynchronize(nullptr), kCudaSuccess);
}

std::vector<float> ValuesOf(const Buffer& buffer) {
  std::vector<float> values(buffer.count, -1);
  Copy(values.data(), buffer.data);
  return values;
}

// Adds up the numbers of the ranks.
absl::Status ExpectSum(Communicator& group, const Buffer& in,
                       const Buffer& out) {
  const std::vector<float> values(kCount, static_cast<float>(group.rank()));
  Copy(in.data, values.data());
  LOCKSTEP_RETURN_IF_ERROR(Wait(group.AllReduce(in, out, ReduceOp::kSum)));
  const int size = group.size();
  EXPECT_THAT(ValuesOf(out), Each(static_cast<float>(size * (size - 1)) / 2));
  return absl::OkStatus();
}

TEST_F(NcclAllocate, GivesMemoryOfTheDevice) {
  for (const int size : {1, 2, 3}) {
    const auto ended = OnRanks(size, [](auto group) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(const GroupMemory memory,
                                group->Allocate(2 * kBytes));
      EXPECT_EQ(memory.bytes(), 2 * kBytes);
      EXPECT_EQ(memory.device().kind, Device::Kind::kCuda);
      EXPECT_EQ(memory.device().ordinal, group->rank());
      EXPECT_THAT(memory.sharing(), StatusIs(absl::StatusCode::kUnimplemented));
      const Buffer first = BufferOf(memory), second = BufferOf(memory, kCount);
      EXPECT_THAT(ValuesOf(first), Each(0.0F));
      EXPECT_THAT(ValuesOf(second), Each(0.0F));
      LOCKSTEP_RETURN_IF_ERROR(ExpectSum(*group, first, first));
      return ExpectSum(*group, first, second);
    });
    EXPECT_THAT(ended, Each(IsOk()));
  }
}

TEST_F(NcclAllocate, TheMemoryOutlivesItsGroup) {
  const auto ended = OnRanks(2, [](auto group) -> absl::Status {
    GroupMemory last;
    for (int i = 0; i < 5; ++i) {
      LOCKSTEP_ASSIGN_OR_RETURN(last, group->Allocate(kBytes));
    }
    LOCKSTEP_RETURN_IF_ERROR(ExpectSum(*group, BufferOf(last), BufferOf(last)));
    group = nullptr;
    EXPECT_THAT(ValuesOf(BufferOf(last)), Each(1.0F));
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(NcclAllocate, NoRankGetsMemoryIfOneDeviceIsFull) {
  const auto ended = OnRanks(3, [](auto group) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(Wait(group->Barrier()));
    if (group->rank() == 0) SetFakeGpu("full_device", 1);
    LOCKSTEP_RETURN_IF_ERROR(Wait(group->Barrier()));
    EXPECT_THAT(
        group->Allocate(kBytes),
        StatusIs(absl::StatusCode::kResourceExhausted,
                 AllOf(HasSubstr("no memory for 524288 bytes of group 'device' "
                                 "on rank 1: cuMemAlloc for device 1"),
                       HasSubstr("out of memory"))));
    LOCKSTEP_RETURN_IF_ERROR(Wait(group->Barrier()));
    if (group->rank() == 0) SetFakeGpu("full_device", -1);
    LOCKSTEP_RETURN_IF_ERROR(Wait(group->Barrier()));
    return group->Allocate(kBytes).status();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(NcclAllocate, NoDeviceHasSoMuch) {
  const auto ended = OnRanks(2, [](auto group) -> absl::Status {
    for (const int64_t bytes : {int64_t{1} << 50, INT64_MAX}) {
      EXPECT_THAT(group->Allocate(bytes),
                  StatusIs(absl::StatusCode::kResourceExhausted,
                           AllOf(HasSubstr(absl::StrCat(bytes, " bytes")),
                                 HasSubstr("on rank 0: cuMemAlloc"))));
    }
    return Wait(group->Barrier());
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(NcclAllocate, ARankThatAllocatesAloneIsFound) {
  const auto ended = OnRanks(2, [](auto group) -> absl::Status {
    CallOptions call;
    call.name = "weights";
    absl::Status status = group->rank() == 0
                              ? group->Allocate(kBytes, call).status()
                              : Wait(group->Barrier());
    while (status.ok()) status = Wait(group->Barrier());
    return status;
  });
  EXPECT_THAT(
      ended,
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    AllOf(HasSubstr("for weights"), HasSubstr("barrier()")))));
}

}  // namespace
}  // namespace lockstep
