// GroupMemory is memory of one rank that the other ranks of its group can read
// where it lies. Collectives on it copy less:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const GroupMemory memory,
//                             group->Allocate(1000 * sizeof(float)));
//   const absl::Span<float> gradient = memory.As<float>();
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(Wait(group->AllReduce(
//       BufferOf(gradient), BufferOf(gradient), ReduceOp::kAvg)));
//
// An all-reduce of private memory between two processes of a host moves each
// byte 5.5 times, and one of group memory 2.5 times. Any part of the memory
// may be a buffer. All collectives but Reduce, AllToAll and those of few bytes
// use it, if the buffers of all ranks that give data are in it; an all-reduce
// needs `in` and `out` in it. The results have the same bits in any case.
//
// Over nccl, it is memory of the rank's device, which NCCL copies as it copies
// any other:
//
//   const Buffer buffer =
//       BufferOf(static_cast<float*>(memory.data()), 1000, memory.device());
#ifndef LOCKSTEP_COLLECTIVE_GROUP_MEMORY_H_
#define LOCKSTEP_COLLECTIVE_GROUP_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/buffer.h"

namespace lockstep {

class Communicator;

// Owns the memory of one rank, which Communicator::Allocate makes. It may be
// destroyed before the group or after it. The other ranks give the memory up at
// their next collective on group memory, at their next Allocate, or at the
// group's end; its pages go back to the system at once.
//
// Requires: no operation uses the memory when its owner is destroyed. A forked
// process does not touch the memory: if it is shared, the process does not have
// it.
// Guarantees: no other rank writes it. Only operations of its own group read it
// where it lies; for all others, also those of a group that was split off, it
// is memory like any other.
// Thread-safety: thread-compatible.
class GroupMemory final {
 public:
  // Makes an owner of nothing.
  GroupMemory() = default;

  GroupMemory(GroupMemory&&) = default;
  GroupMemory& operator=(GroupMemory&&) = default;

  // Returns the memory, which is 0 at first. On the host, it begins at a page.
  void* data() const { return memory_.get(); }
  int64_t bytes() const { return memory_ == nullptr ? 0 : bytes_; }

  // Returns where the memory is: on this rank's device over nccl, and on the
  // host over all other backends.
  Device device() const { return device_; }

  // Returns all whole elements of type T.
  // Requires: the memory is on the host.
  template <typename T>
  absl::Span<T> As() const {
    return absl::MakeSpan(static_cast<T*>(data()),
                          static_cast<size_t>(bytes()) / sizeof(T));
  }

  // Returns OK if all ranks reach the memory of all. Otherwise, it is memory
  // like any other on all ranks, and the error says why: UNIMPLEMENTED if it is
  // so with this backend, and otherwise what a rank could not get, such as
  // RESOURCE_EXHAUSTED, "rank 2: could not make 4096 bytes of shared memory:
  // Cannot allocate memory". All ranks have the same.
  const absl::Status& sharing() const { return sharing_; }

 private:
  friend class Communicator;
  GroupMemory(std::shared_ptr<void> memory, int64_t bytes, Device device,
              absl::Status sharing)
      : memory_(std::move(memory)),
        bytes_(bytes),
        device_(device),
        sharing_(std::move(sharing)) {}

  std::shared_ptr<void> memory_;
  int64_t bytes_ = 0;
  Device device_;
  absl::Status sharing_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_GROUP_MEMORY_H_
