// GradientMemory is memory for gradients, on the host or on a CUDA device. It
// can be set to zero and copied; on a device, both operations are queued on the
// trainer's stream. Internal.
#ifndef LOCKSTEP_SESSION_GRADIENT_MEMORY_H_
#define LOCKSTEP_SESSION_GRADIENT_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gpu/gpu.h"
#include "lockstep/gpu/stream.h"

namespace lockstep::internal_session {

// Requires: the stream outlives it.
// Thread-safety: thread-compatible.
class GradientMemory {
 public:
  // Returns RESOURCE_EXHAUSTED if there is not enough memory and, for a device,
  // the errors of LoadCuda and Device::Open.
  static absl::StatusOr<std::unique_ptr<GradientMemory>> Create(
      int64_t floats, Device device, Stream stream,
      const std::string& cuda_library);
  ~GradientMemory();

  GradientMemory(const GradientMemory&) = delete;
  GradientMemory& operator=(const GradientMemory&) = delete;

  float* data() const { return data_; }
  Device device() const { return device_; }
  Stream stream() const { return stream_; }

  absl::Status SetToZero(int64_t floats);
  absl::Status Copy(const void* from, void* to, int64_t bytes) const;
  // Waits until the queued work of the stream has ended.
  absl::Status Await() const;

 private:
  GradientMemory(Device device, Stream stream)
      : device_(device), stream_(stream) {}

  const Device device_;
  const Stream stream_;
  const ForkGuard fork_guard_;
  std::vector<float> on_host_;
  std::unique_ptr<const internal_gpu::Gpu> gpu_;  // null: the host
  float* data_ = nullptr;
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_GRADIENT_MEMORY_H_
