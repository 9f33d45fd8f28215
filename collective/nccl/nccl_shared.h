// The state that the parts of an NCCL transport share: the rank and its device,
// the libraries, spare events, and whether the transport was cancelled.
#ifndef LOCKSTEP_COLLECTIVE_NCCL_NCCL_SHARED_H_
#define LOCKSTEP_COLLECTIVE_NCCL_NCCL_SHARED_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/collective/transport.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/gpu.h"

namespace lockstep::internal_collective {

// The bytes of device memory that the collectives and each channel have for
// themselves: for what a barrier sums, or for a tag.
constexpr size_t kNcclScratchBytes = 64;

// Events of CUDA, which are used again and again.
// Requires: `cuda` outlives it.
// Thread-safety: thread-safe.
class EventPool {
 public:
  explicit EventPool(const internal_gpu::CudaApi& cuda) : cuda_(cuda) {}

  // Returns an event, which is new or was given back.
  // Requires: the device's context is current.
  absl::StatusOr<internal_gpu::CudaEvent*> Take();

  // Takes an event back. The device need not have reached it.
  void Give(internal_gpu::CudaEvent* event);

  // Destroys the events that were given back.
  // Requires: the device's context is current.
  void DestroyAll();

 private:
  const internal_gpu::CudaApi& cuda_;
  Mutex mutex_;
  std::vector<internal_gpu::CudaEvent*> free_ ABSL_GUARDED_BY(mutex_);
};

// The state that the parts of an NCCL transport share.
// Requires: Open is the first call. The libraries outlive it.
// Thread-safety: thread-safe after Open.
class NcclShared {
 public:
  NcclShared(const TransportContext& context,
             const internal_gpu::CudaApi& cuda_api, const NcclApi& nccl_api)
      : rank(context.rank),
        size(context.size),
        cuda(cuda_api),
        nccl(nccl_api),
        events(cuda_api),
        context_(context) {}

  // Opens this rank's device, as NcclOptions::device says.
  absl::Status Open(int ordinal);
  bool is_open() const { return device_ != nullptr; }
  const internal_gpu::Gpu& device() const { return *device_; }
  // Returns the device, for memory that may outlive the transport.
  const std::shared_ptr<const internal_gpu::Gpu>& kept_device() const {
    return device_;
  }

  absl::Status CheckCancelled() const;
  absl::Status Check(internal_gpu::CudaResult result,
                     absl::string_view what) const {
    return internal_gpu::CudaStatus(cuda, result, what);
  }

  // Returns the id of a communicator, which one of its ranks `makes` and the
  // others wait for. `of` names the communicator in the same way on all of
  // them.
  absl::StatusOr<NcclUniqueId> ShareId(absl::string_view of, bool makes) const;

  const int rank;
  const int size;
  const internal_gpu::CudaApi& cuda;
  const NcclApi& nccl;
  EventPool events;
  // True once the transport is cancelled. It publishes nothing, so any memory
  // order would do: the mutex of NcclCommunicator orders calls of NCCL and the
  // abort.
  std::atomic<bool> cancelled{false};

 private:
  const TransportContext context_;
  std::shared_ptr<const internal_gpu::Gpu> device_;
};

// Returns the handle of a trainer's stream, as the driver knows it.
inline internal_gpu::CudaStream* HandleOf(const Stream& stream) {
  return static_cast<internal_gpu::CudaStream*>(stream.handle());
}

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_NCCL_NCCL_SHARED_H_
