// TestMemory is memory that the operations of a group may use, on the host or
// on a device, with values that the host writes and reads.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto memory,
//                             TestMemory::Make(*group, bytes, nccl));
//   LOCKSTEP_RETURN_IF_ERROR(memory->Write(values.data(), bytes));
//   const Buffer buffer = memory->As(DType::kF32, count);
#ifndef LOCKSTEP_TOOLS_DOCTOR_TEST_MEMORY_H_
#define LOCKSTEP_TOOLS_DOCTOR_TEST_MEMORY_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/dtype.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/group_memory.h"
#include "lockstep/collective/transport.h"
#include "lockstep/gpu/gpu.h"

namespace lockstep {

// Returns the options of an operation that fails at a time.
inline CallOptions CallUntil(absl::Time until) {
  CallOptions call;
  constexpr absl::Duration kUnit = absl::Milliseconds(100);  // for messages
  call.deadline = std::max(absl::Floor(until - absl::Now(), kUnit), kUnit);
  return call;
}

// Thread-safety: thread-compatible.
class TestMemory {
 public:
  // All ranks call it, with the same number of bytes. `nccl` names the driver
  // if the group is one of devices.
  static absl::StatusOr<std::unique_ptr<TestMemory>> Make(
      Communicator& group, int64_t bytes, const NcclOptions& nccl,
      absl::Time until);

  ~TestMemory();
  TestMemory(const TestMemory&) = delete;
  TestMemory& operator=(const TestMemory&) = delete;

  // Copies the first `bytes` from or to the host.
  absl::Status Write(const void* from, int64_t bytes);
  absl::Status Read(void* to, int64_t bytes) const;

  // Returns the first elements.
  Buffer As(DType dtype, int64_t count) const {
    return {memory_.data(), count, dtype, memory_.device()};
  }

 private:
  explicit TestMemory(GroupMemory memory) : memory_(std::move(memory)) {}

  absl::Status Copy(void* to, const void* from, int64_t bytes) const;

  const GroupMemory memory_;
  std::unique_ptr<const internal_gpu::Gpu> gpu_;  // null on the host
  internal_gpu::CudaStream* stream_ = nullptr;
};

// Returns rank 0's answer on all ranks, which must all call it. The memory, of
// 8 bytes or more, is overwritten.
absl::StatusOr<bool> AnswerOfRankZero(bool answer, Communicator& group,
                                      TestMemory& memory, absl::Time until);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DOCTOR_TEST_MEMORY_H_
