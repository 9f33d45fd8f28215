#include "lockstep/gpu/capture_testing.h"

#include <string>

#include "absl/status/statusor.h"
#include "lockstep/base/check.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/dynamic_library.h"

namespace lockstep::internal_gpu {

Capture::Capture(const std::string& library, CudaStream* stream)
    : stream_(stream) {
  const absl::StatusOr<DynamicLibrary> cuda =
      DynamicLibrary::Open(library.empty() ? "libcuda.so.1" : library);
  CudaResult (*begin)(CudaStream*, CudaCaptureMode) = nullptr;
  LOCKSTEP_CHECK(cuda.ok());
  LOCKSTEP_CHECK(cuda->Find("cuStreamBeginCapture_v2", begin).ok());
  LOCKSTEP_CHECK(cuda->Find("cuStreamEndCapture", end_).ok());
  LOCKSTEP_CHECK(cuda->Find("cuGraphDestroy", destroy_).ok());
  LOCKSTEP_CHECK(begin(stream, CudaCaptureMode::kGlobal) == kCudaSuccess);
}

Capture::~Capture() {
  if (stream_ != nullptr) End();
}

CudaResult Capture::End() {
  void* graph = nullptr;
  const CudaResult result = end_(stream_, &graph);
  stream_ = nullptr;
  if (graph != nullptr) destroy_(graph);
  return result;
}

}  // namespace lockstep::internal_gpu
