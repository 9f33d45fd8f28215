#include "lockstep/tools/doctor/test_memory.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/group_memory.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/work.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/gpu.h"

namespace lockstep {

using internal_gpu::CudaApi;
using internal_gpu::Gpu;

absl::StatusOr<std::unique_ptr<TestMemory>> TestMemory::Make(
    Communicator& group, int64_t bytes, const NcclOptions& nccl,
    absl::Time until) {
  LOCKSTEP_ASSIGN_OR_RETURN(GroupMemory memory,
                            group.Allocate(bytes, CallUntil(until)));
  std::unique_ptr<TestMemory> made(new TestMemory(std::move(memory)));
  const Device device = made->memory_.device();
  if (device.kind == Device::Kind::kHost) return made;
  LOCKSTEP_ASSIGN_OR_RETURN(const CudaApi* const cuda,
                            internal_gpu::LoadCuda(nccl.cuda_library));
  LOCKSTEP_ASSIGN_OR_RETURN(made->gpu_, Gpu::Open(*cuda, device.ordinal));
  LOCKSTEP_RETURN_IF_ERROR(made->gpu_->InContext([&made, cuda] {
    return made->gpu_->Check(
        cuda->StreamCreate(&made->stream_,
                           internal_gpu::kCudaStreamNonBlocking),
        "cuStreamCreate");
  }));
  return made;
}

TestMemory::~TestMemory() {
  if (stream_ == nullptr) return;
  gpu_->InContext([this] {
        return gpu_->Check(gpu_->cuda().StreamDestroy(stream_),
                           "cuStreamDestroy");
      })
      .IgnoreError();
}

absl::Status TestMemory::Copy(void* to, const void* from, int64_t bytes) const {
  const auto size = static_cast<size_t>(bytes);
  if (gpu_ == nullptr) {
    std::memcpy(to, from, size);
    return absl::OkStatus();
  }
  const CudaApi& cuda = gpu_->cuda();
  return gpu_->InContext([&] {
    LOCKSTEP_RETURN_IF_ERROR(gpu_->Check(
        cuda.MemcpyAsync(to, from, size, stream_), "cuMemcpyAsync"));
    return gpu_->Check(cuda.StreamSynchronize(stream_), "cuStreamSynchronize");
  });
}

absl::Status TestMemory::Write(const void* from, int64_t bytes) {
  return Copy(memory_.data(), from, bytes);
}

absl::Status TestMemory::Read(void* to, int64_t bytes) const {
  return Copy(to, memory_.data(), bytes);
}

absl::StatusOr<bool> AnswerOfRankZero(bool answer, Communicator& group,
                                      TestMemory& memory, absl::Time until) {
  // The answer is true unless it is this number: a backend that is being tried
  // may write wrong ones, and this rank would leave the others.
  constexpr int64_t kFalse = 0x66616c7365;
  int64_t word = answer ? 0 : kFalse;
  LOCKSTEP_RETURN_IF_ERROR(memory.Write(&word, sizeof(word)));
  const Buffer buffer = memory.As(DType::kI64, 1);
  LOCKSTEP_RETURN_IF_ERROR(
      Wait(group.Broadcast(buffer, buffer, /*root=*/0, CallUntil(until))));
  LOCKSTEP_RETURN_IF_ERROR(memory.Read(&word, sizeof(word)));
  return word != kFalse;
}

}  // namespace lockstep
