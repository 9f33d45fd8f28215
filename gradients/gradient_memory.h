// GradientMemory is memory for gradients: memory of their group on the host, or
// memory of a CUDA device. It can be set to zero and copied; on a device, both
// operations are queued on the trainer's stream. Internal.
#ifndef LOCKSTEP_GRADIENTS_GRADIENT_MEMORY_H_
#define LOCKSTEP_GRADIENTS_GRADIENT_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/group_memory.h"
#include "lockstep/gpu/gpu.h"
#include "lockstep/gpu/stream.h"

namespace lockstep::internal_gradients {

// A place for memory, and the operations on memory that is there.
// Requires: the stream outlives it.
// Thread-safety: thread-compatible.
class MemoryPlace {
 public:
  // Returns the errors of LoadCuda and Gpu::Open for a device.
  static absl::StatusOr<MemoryPlace> Open(Device device, Stream stream,
                                          const std::string& cuda_library);

  bool on_host() const { return gpu_ == nullptr; }
  Device device() const { return device_; }
  Stream stream() const { return stream_; }

  absl::Status SetToZero(void* data, int64_t bytes) const;
  absl::Status Copy(const void* from, void* to, int64_t bytes) const;
  // Waits until the queued work of the stream has ended.
  absl::Status Await() const;

 private:
  friend class GradientMemory;
  MemoryPlace(Device device, Stream stream)
      : device_(device), stream_(stream) {}

  Device device_;
  Stream stream_;
  std::shared_ptr<const internal_gpu::Gpu> gpu_;  // null: the host
};

// Memory at a multiple of 64 bytes, all 0.
// Thread-safety: thread-compatible.
class GradientMemory {
 public:
  // On the host, all ranks of the group call it, as Communicator::Allocate
  // says. Returns RESOURCE_EXHAUSTED, with the number of bytes, if there is not
  // enough memory.
  static absl::StatusOr<std::unique_ptr<GradientMemory>> Create(
      const MemoryPlace& place, Communicator& group, int64_t bytes,
      const CallOptions& call);
  ~GradientMemory();

  GradientMemory(const GradientMemory&) = delete;
  GradientMemory& operator=(const GradientMemory&) = delete;

  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Returns GroupMemory::sharing, or UNIMPLEMENTED for a device.
  absl::Status sharing() const {
    return place_.on_host()
               ? on_host_.sharing()
               : absl::UnimplementedError("a device shares no memory");
  }

 private:
  GradientMemory(const MemoryPlace& place, int64_t bytes)
      : place_(place), bytes_(bytes) {}

  MemoryPlace place_;
  const int64_t bytes_;
  const ForkGuard fork_guard_;
  GroupMemory on_host_;
  char* data_ = nullptr;
};

}  // namespace lockstep::internal_gradients

#endif  // LOCKSTEP_GRADIENTS_GRADIENT_MEMORY_H_
