// A device in use: its primary context, which is the one of the trainer's
// runtime, is kept, and is a thread's only as long as a call needs it.
// Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto device, Device::Open(*cuda, 0));
//   absl::Status status = device->InContext([&] {
//     return device->Check(cuda->MemAlloc(&memory, bytes), "cuMemAlloc");
//   });
#ifndef LOCKSTEP_GPU_DEVICE_H_
#define LOCKSTEP_GPU_DEVICE_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep::internal_gpu {

// While one lives, no capture of a stream into a graph, by this or another
// thread, forbids this thread a call of the driver's, nor does such a call
// break the capture. What is put into a stream that is captured is still
// captured.
class RelaxedCapture {
 public:
  // `cuda` must outlive it.
  explicit RelaxedCapture(const CudaApi& cuda);
  // On the same thread: gives it the mode back that it had.
  ~RelaxedCapture();

  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const CudaApi& cuda_;
  CudaCaptureMode mode_ = CudaCaptureMode::kRelaxed;
  const bool exchanged_;
};

// Thread-safety: thread-safe.
class Device {
 public:
  // The device of that number, from 0, with the functions of `cuda`, which must
  // outlive it. INVALID_ARGUMENT if there is no such device.
  static absl::StatusOr<std::unique_ptr<const Device>> Open(const CudaApi& cuda,
                                                            int ordinal);
  ~Device();

  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const CudaApi& cuda() const { return cuda_; }
  int ordinal() const { return ordinal_; }

  // Calls `run` with the device's context as this thread's and captures
  // relaxed, and returns its Status, or that of pushing and popping the
  // context.
  template <typename Run>
  absl::Status InContext(Run&& run) const {
    const RelaxedCapture relaxed(cuda_);
    LOCKSTEP_RETURN_IF_ERROR(
        Check(cuda_.CtxPushCurrent(context_), "cuCtxPushCurrent"));
    absl::Status status = run();
    status.Update(Check(cuda_.CtxPopCurrent(nullptr), "cuCtxPopCurrent"));
    return status;
  }

  // UNIMPLEMENTED, with `text`, if a trainer's stream is being captured into a
  // graph: to wait for our events would break that, and a stream of ours that
  // waited for its events would be captured, too. In the device's context.
  absl::Status CheckNotCaptured(CudaStream* stream,
                                absl::string_view text) const;

  // CudaStatus, which names the device. Allocates nothing where all is well.
  absl::Status Check(CudaResult result, absl::string_view what) const;

 private:
  Device(const CudaApi& cuda, int ordinal, CudaDevice device,
         CudaContext* context)
      : cuda_(cuda), ordinal_(ordinal), device_(device), context_(context) {}

  const CudaApi& cuda_;
  const int ordinal_;
  const CudaDevice device_;
  CudaContext* const context_;
};

}  // namespace lockstep::internal_gpu

#endif  // LOCKSTEP_GPU_DEVICE_H_
