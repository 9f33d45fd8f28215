// A Gpu keeps the primary context of a GPU, which is also the context of the
// trainer's CUDA runtime. The context is current in a thread only during a call
// that needs it. Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto device, Gpu::Open(*cuda, 0));
//   absl::Status status = device->InContext([&] {
//     return device->Check(cuda->MemAlloc(&memory, bytes), "cuMemAlloc");
//   });
#ifndef LOCKSTEP_GPU_GPU_H_
#define LOCKSTEP_GPU_GPU_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep::internal_gpu {

// While this object lives, this thread may make all calls of the driver
// although streams are captured into graphs, by this or another thread. These
// calls do not break the captures. Work that is put into a captured stream is
// still captured.
// Requires: the thread that made it destroys it.
// Thread-safety: only the thread that made it uses it.
class RelaxedCapture {
 public:
  // `cuda` must outlive this object.
  explicit RelaxedCapture(const CudaApi& cuda);
  // Restores the capture mode that the thread had before.
  ~RelaxedCapture();

  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const CudaApi& cuda_;
  CudaCaptureMode mode_ = CudaCaptureMode::kRelaxed;
  const bool exchanged_;
};

// A GPU whose primary context is retained.
// Thread-safety: thread-safe.
class Gpu {
 public:
  // Opens the device with the number `ordinal`, from 0, with the functions of
  // `cuda`, which must outlive it. INVALID_ARGUMENT if there is no such device.
  static absl::StatusOr<std::unique_ptr<const Gpu>> Open(const CudaApi& cuda,
                                                         int ordinal);
  ~Gpu();

  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const CudaApi& cuda() const { return cuda_; }
  int ordinal() const { return ordinal_; }

  // Calls `run` while the device's context is current in this thread and the
  // captures are relaxed. Returns the Status of `run`, or the error of pushing
  // or popping the context.
  template <typename Run>
  absl::Status InContext(Run&& run) const {
    const RelaxedCapture relaxed(cuda_);
    LOCKSTEP_RETURN_IF_ERROR(
        Check(cuda_.CtxPushCurrent(context_), "cuCtxPushCurrent"));
    absl::Status status = run();
    status.Update(Check(cuda_.CtxPopCurrent(nullptr), "cuCtxPopCurrent"));
    return status;
  }

  // Returns UNIMPLEMENTED with `text` if a trainer's stream is being captured
  // into a graph. Waiting for events of this library would break the capture,
  // and a stream of this library that waited for the trainer's events would be
  // captured too. Requires: the device's context is current.
  absl::Status CheckNotCaptured(CudaStream* stream,
                                absl::string_view text) const;

  // Returns the CudaStatus of `result`, with the device in its message.
  // Allocates nothing if `result` is a success.
  absl::Status Check(CudaResult result, absl::string_view what) const;

 private:
  Gpu(const CudaApi& cuda, int ordinal, CudaDevice device, CudaContext* context)
      : cuda_(cuda), ordinal_(ordinal), device_(device), context_(context) {}

  const CudaApi& cuda_;
  const int ordinal_;
  const CudaDevice device_;
  CudaContext* const context_;
};

}  // namespace lockstep::internal_gpu

#endif  // LOCKSTEP_GPU_GPU_H_
