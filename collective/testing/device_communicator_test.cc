#include "lockstep/collective/testing/device_communicator.h"

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>  // NOLINT: waiters
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/local/local_group.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/testing/conformance.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep {
namespace {

using internal_gpu::CudaApi;
using internal_gpu::CudaResult;
using internal_gpu::kCudaInvalidContext;
using internal_gpu::kCudaOutOfMemory;
using internal_gpu::kCudaSuccess;
using internal_gpu::LoadCuda;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using Ranks = std::vector<std::unique_ptr<Communicator>>;

// This is not the first device, which is current by default.
constexpr int kOrdinal = 3;

// ---- The fake CUDA, and the memory that it has given out.

const CudaApi& Fake() {
  static const CudaApi& fake = **LoadCuda("collective/nccl/libfake_gpu.so");
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

// ---- A backend that takes only device memory. The fake's device memory is
// host memory, so that a local group can do the work.

// Makes the functions that a backend implements callable.
struct Opened : Communicator {
  using Communicator::CheckSupported;
  using Communicator::Start;
};

// A backend that refuses host memory, over a local group.
// Thread-safety: as Communicator.
class DeviceOnly : public Communicator {
 public:
  explicit DeviceOnly(std::unique_ptr<Communicator> local)
      : Communicator(local->name(), local->rank(), local->size(),
                     LocalGroupOptions().deadline),
        local_(std::move(local)) {}

 protected:
  absl::StatusOr<std::unique_ptr<Communicator>> SplitGroup(
      absl::string_view name, absl::Span<const int> members) override {
    LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> part,
                              local_->Split(name, members));
    return std::make_unique<DeviceOnly>(std::move(part));
  }
  void AbortGroup(const absl::Status& why) override { local_->Abort(why); }
  absl::Status CloseGroup() override { return local_->Close(); }

  absl::Status CheckSupported(const Operation& op) const override {
    LOCKSTEP_RETURN_IF_ERROR(CheckDevice("in", op.in));
    LOCKSTEP_RETURN_IF_ERROR(CheckDevice("out", op.out));
    return ((*local_).*&Opened::CheckSupported)(OnHost(op));
  }
  absl::StatusOr<Work> Start(Operation op) override {
    return ((*local_).*&Opened::Start)(OnHost(op));
  }

 private:
  static absl::Status CheckDevice(absl::string_view what,
                                  const ConstBuffer& buffer) {
    if (buffer.count == 0) return absl::OkStatus();
    internal_gpu::CudaPlace place;
    if (buffer.device.kind == Device::Kind::kCuda &&
        buffer.device.ordinal == kOrdinal &&
        PlaceOf(Fake(), buffer.data, place) == kCudaSuccess &&
        place.type == internal_gpu::kCudaMemoryTypeDevice &&
        place.device == kOrdinal) {
      return absl::OkStatus();
    }
    return absl::InternalError(
        absl::StrCat(what, " is no memory of device ", kOrdinal));
  }

  static Operation OnHost(Operation op) {
    op.in.device = {};
    op.out.device = {};
    return op;
  }

  const std::unique_ptr<Communicator> local_;
};

Ranks Make(int size) {
  LocalGroupOptions options;
  options.size = size;
  Ranks ranks, locals = *MakeLocalGroup(options);
  for (auto& local : locals) {
    ranks.push_back(*OverDevice(std::make_unique<DeviceOnly>(std::move(local)),
                                &Cuda(), kOrdinal));
  }
  return ranks;
}

Buffer BufferTo(std::vector<float>& values) {
  return BufferOf(absl::MakeSpan(values));
}

// ---- Tests.

TEST(DeviceCommunicator, Conforms) {
  ExpectConforms(Make);
  EXPECT_EQ(blocks_held, 0);
  // No context was left on the stack.
  EXPECT_EQ(Fake().CtxPopCurrent(nullptr), kCudaInvalidContext);
}

TEST(DeviceCommunicator, IsInThePlaceOfItsGroup) {
  LocalGroupOptions options;
  options.name = "cards";
  options.size = 2;
  Ranks locals = *MakeLocalGroup(options);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Communicator> rank,
      OverDevice(std::make_unique<DeviceOnly>(std::move(locals[1])), &Cuda(),
                 kOrdinal));
  EXPECT_EQ(rank->name(), "cards");
  EXPECT_EQ(rank->rank(), 1);
  EXPECT_EQ(rank->size(), 2);
}

TEST(DeviceCommunicator, SaysWhichDeviceThereIsNot) {
  EXPECT_THAT(OverDevice(std::move(MakeLocalGroup({})->front()), &Cuda(), 99),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("device should be 0 to 7"),
                             HasSubstr("device=99"))));
}

TEST(DeviceCommunicator, CopiesBackWhatWasDroppedBefore) {
  const Ranks ranks = Make(2);
  OnAllRanks(ranks, [](Communicator& rank) {
    std::vector<float> values(100, 1);
    LOCKSTEP_ASSERT_OK(
        rank.AllReduce(BufferTo(values), BufferTo(values), ReduceOp::kSum)
            .status());
    LOCKSTEP_ASSERT_OK(Wait(rank.Barrier()));
    EXPECT_THAT(values, Each(2));
  });
}

TEST(DeviceCommunicator, CopiesBackWhatEndedBeforeAFailedCall) {
  const Ranks ranks = Make(2);
  std::vector<float> values(2, 1), others(2, 1);
  LOCKSTEP_ASSERT_OK(
      ranks[0]
          ->AllReduce(BufferTo(values), BufferTo(values), ReduceOp::kSum)
          .status());
  LOCKSTEP_ASSERT_OK(Wait(
      ranks[1]->AllReduce(BufferTo(others), BufferTo(others), ReduceOp::kSum)));
  ranks[1]->Abort(absl::InternalError("loss is NaN"));
  EXPECT_THAT(ranks[0]->Barrier(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(values, Each(2));
}

TEST(DeviceCommunicator, CopiesBackOnceAndWhenAskedWhetherItIsDone) {
  const Ranks ranks = Make(2);
  std::vector<float> values(2, 1), others(2, 1);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const Work work,
      ranks[0]->AllReduce(BufferTo(values), BufferTo(values), ReduceOp::kSum));
  EXPECT_FALSE(work.Done());
  LOCKSTEP_EXPECT_OK(work.status());
  LOCKSTEP_ASSERT_OK(Wait(
      ranks[1]->AllReduce(BufferTo(others), BufferTo(others), ReduceOp::kSum)));
  EXPECT_THAT(values, Each(1));
  EXPECT_TRUE(work.Done());
  EXPECT_THAT(values, Each(2));
  values = {7, 7};
  LOCKSTEP_EXPECT_OK(work.Wait());
  EXPECT_THAT(values, Each(7));
  EXPECT_THAT(work.WaitOnStream(Stream(nullptr)),
              StatusIs(absl::StatusCode::kUnimplemented));
}

TEST(DeviceCommunicator, CopiesBackNothingOfWhatFailed) {
  const Ranks ranks = Make(2);
  std::vector<float> in(2, 1), out(2, 5);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const Work work,
      ranks[0]->AllReduce(BufferTo(in), BufferTo(out), ReduceOp::kSum));
  ranks[1]->Abort(absl::InternalError("loss is NaN"));
  EXPECT_THAT(work.Wait(), StatusIs(absl::StatusCode::kAborted,
                                    HasSubstr("INTERNAL: loss is NaN")));
  EXPECT_THAT(out, Each(5));
}

TEST(DeviceCommunicator, WritesNothingDroppedOnceItIsGone) {
  Ranks ranks = Make(2);
  std::vector<float> in(2, 1), out(2), dropped(2, 5), kept(2, 5);
  const auto reduce = [&](Communicator& rank, std::vector<float>& to) {
    return *rank.AllReduce(BufferTo(in), BufferTo(to), ReduceOp::kSum);
  };
  static_cast<void>(reduce(*ranks[0], dropped));
  const Work work = reduce(*ranks[0], kept);
  LOCKSTEP_EXPECT_OK(reduce(*ranks[1], out).Wait());
  LOCKSTEP_EXPECT_OK(reduce(*ranks[1], out).Wait());
  ranks.clear();
  LOCKSTEP_EXPECT_OK(work.Wait());
  EXPECT_THAT(kept, Each(2));
  EXPECT_THAT(dropped, Each(5));
}

TEST(DeviceCommunicator, UsesMemoryAgain) {
  const Ranks ranks = Make(1);
  std::vector<float> in(100, 1), out(100);
  const auto reduce = [&](std::vector<float>& to) {
    return Wait(
        ranks[0]->AllReduce(BufferTo(in), BufferTo(to), ReduceOp::kSum));
  };
  for (int i = 0; i < 2; ++i) {
    LOCKSTEP_ASSERT_OK(reduce(in));
    EXPECT_EQ(blocks_held, 1) << "in place, there is one block";
  }
  for (int i = 0; i < 2; ++i) {
    LOCKSTEP_ASSERT_OK(reduce(out));
    EXPECT_EQ(blocks_held, 2);
  }
}

TEST(DeviceCommunicator, WhatFindsNoMemoryWasNotIssued) {
  const Ranks ranks = Make(2);
  std::vector<float> values(2, 1);
  no_memory_left = true;
  EXPECT_THAT(
      ranks[0]->AllReduce(BufferTo(values), BufferTo(values), ReduceOp::kSum),
      StatusIs(absl::StatusCode::kResourceExhausted,
               HasSubstr("cuMemAlloc for device 3")));
  no_memory_left = false;
  OnAllRanks(ranks, [](Communicator& rank) {
    LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
    // The refused call took no number, either.
    EXPECT_EQ(rank.RecentOperations().back().sequence, 1u);
  });
}

TEST(DeviceCommunicator, TheGroupsDeadlineIsTheInnerOne) {
  LocalGroupOptions options;
  options.size = 2;
  options.deadline = absl::Milliseconds(1);
  Ranks locals = *MakeLocalGroup(options);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Communicator> rank,
      OverDevice(std::move(locals[0]), &Cuda(), kOrdinal));
  EXPECT_THAT(Wait(rank->Barrier()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("rank 1 did not come within 1ms")));
}

TEST(DeviceCommunicator, AnyThreadMayWait) {
  const Ranks ranks = Make(2);
  std::vector<float> values(1000, 1), others(1000, 1);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const Work work,
      ranks[0]->AllReduce(BufferTo(values), BufferTo(values), ReduceOp::kSum));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      LOCKSTEP_EXPECT_OK(work.Wait());
      EXPECT_THAT(values, Each(2));
    });
  }
  LOCKSTEP_EXPECT_OK(Wait(
      ranks[1]->AllReduce(BufferTo(others), BufferTo(others), ReduceOp::kSum)));
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lockstep
