// Captures a stream into a graph as a trainer does, for tests of calls that
// happen during a capture:
//
//   Capture capture("gpu/libfake_cuda.so", stream);
//   ...
//   EXPECT_EQ(capture.End(), kCudaSuccess);  // nothing has broken it
#ifndef LOCKSTEP_GPU_CAPTURE_TESTING_H_
#define LOCKSTEP_GPU_CAPTURE_TESTING_H_

#include <string>

#include "lockstep/base/language.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep::internal_gpu {

// Requires: one thread begins and ends the capture.
// Thread-safety: thread-compatible.
class Capture {
 public:
  // Begins a capture in CUDA's global mode, with the functions of the library
  // that LoadCuda would load.
  Capture(const std::string& library, CudaStream* stream);
  ~Capture();

  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Ends the capture and destroys its graph. Returns kCudaCaptureInvalidated if
  // a call has broken the capture.
  CudaResult End();

 private:
  CudaStream* stream_;  // nullptr after the end
  CudaResult (*end_)(CudaStream* stream, void** graph) = nullptr;
  CudaResult (*destroy_)(void* graph) = nullptr;
};

}  // namespace lockstep::internal_gpu

#endif  // LOCKSTEP_GPU_CAPTURE_TESTING_H_
