// A capture of a stream into a graph, as a trainer makes one, for tests of what
// goes on beside it:
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

// It begins and ends on one thread.
class Capture {
 public:
  // In CUDA's global mode, by the functions of the library that LoadCuda would
  // load.
  Capture(const std::string& library, CudaStream* stream);
  ~Capture();

  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // kCudaCaptureInvalidated if a call has broken it. The graph is thrown away.
  CudaResult End();

 private:
  CudaStream* stream_;  // nullptr when it has ended
  CudaResult (*end_)(CudaStream* stream, void** graph) = nullptr;
  CudaResult (*destroy_)(void* graph) = nullptr;
};

}  // namespace lockstep::internal_gpu

#endif  // LOCKSTEP_GPU_CAPTURE_TESTING_H_
