// A MemoryPlace is where gradients are: the host, or a CUDA device. Memory
// there can be set to zero and copied; on a device, both operations are queued
// on the trainer's stream. Internal.
#ifndef LOCKSTEP_GRADIENTS_MEMORY_PLACE_H_
#define LOCKSTEP_GRADIENTS_MEMORY_PLACE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gpu/gpu.h"
#include "lockstep/gpu/stream.h"

namespace lockstep::internal_gradients {

// A place of memory, and the operations on memory that is there.
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
  MemoryPlace(Device device, Stream stream)
      : device_(device), stream_(stream) {}

  Device device_;
  Stream stream_;
  std::shared_ptr<const internal_gpu::Gpu> gpu_;  // null: the host
};

}  // namespace lockstep::internal_gradients

#endif  // LOCKSTEP_GRADIENTS_MEMORY_PLACE_H_
