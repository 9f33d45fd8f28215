#include "lockstep/gpu/gpu.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep::internal_gpu {
namespace {

absl::Status CheckDevice(const CudaApi& cuda, CudaResult result,
                         absl::string_view what, int ordinal) {
  if (result == kCudaSuccess) return absl::OkStatus();
  return CudaStatus(cuda, result, absl::StrCat(what, " for device ", ordinal));
}

}  // namespace

RelaxedCapture::RelaxedCapture(const CudaApi& cuda)
    : cuda_(cuda),
      exchanged_(cuda.ThreadExchangeStreamCaptureMode(&mode_) == kCudaSuccess) {
}

RelaxedCapture::~RelaxedCapture() {
  if (exchanged_) cuda_.ThreadExchangeStreamCaptureMode(&mode_);
}

absl::StatusOr<std::unique_ptr<const Gpu>> Gpu::Open(const CudaApi& cuda,
                                                     int ordinal) {
  int count = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      CudaStatus(cuda, cuda.DeviceGetCount(&count), "cuDeviceGetCount"));
  if (ordinal < 0 || ordinal >= count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "device should be 0 to ", count - 1, ", as this process sees ", count,
        " (CUDA_VISIBLE_DEVICES), but got device=", ordinal));
  }
  CudaDevice device = 0;
  LOCKSTEP_RETURN_IF_ERROR(CheckDevice(cuda, cuda.DeviceGet(&device, ordinal),
                                       "cuDeviceGet", ordinal));
  CudaContext* context = nullptr;
  const RelaxedCapture relaxed(cuda);
  LOCKSTEP_RETURN_IF_ERROR(
      CheckDevice(cuda, cuda.DevicePrimaryCtxRetain(&context, device),
                  "cuDevicePrimaryCtxRetain", ordinal));
  return std::unique_ptr<const Gpu>(new Gpu(cuda, ordinal, device, context));
}

Gpu::~Gpu() {
  const RelaxedCapture relaxed(cuda_);
  cuda_.DevicePrimaryCtxRelease(device_);
}

absl::Status Gpu::CheckNotCaptured(CudaStream* stream,
                                   absl::string_view text) const {
  CudaCaptureStatus status = CudaCaptureStatus::kNone;
  const CudaResult result = cuda_.StreamIsCapturing(stream, &status);
  // The default stream is never captured, but it can't be used while a stream
  // that waits for it is captured.
  if (result == kCudaCaptureImplicit || status != CudaCaptureStatus::kNone) {
    return absl::UnimplementedError(text);
  }
  return Check(result, "cuStreamIsCapturing");
}

absl::Status Gpu::Check(CudaResult result, absl::string_view what) const {
  return CheckDevice(cuda_, result, what, ordinal_);
}

}  // namespace lockstep::internal_gpu
