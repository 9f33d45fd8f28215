// Stream names a stream of a GPU in interfaces that need no header of CUDA.
//
//   cudaStream_t stream = ...;
//   work.WaitOnStream(Stream(stream));
#ifndef LOCKSTEP_GPU_STREAM_H_
#define LOCKSTEP_GPU_STREAM_H_

#include "lockstep/base/language.h"

namespace lockstep {

// A cudaStream_t, or nullptr for the default stream. cudaStreamPerThread means
// another stream in each thread, so it is refused where another thread may use
// it.
// Thread-safety: thread-compatible.
class Stream {
 public:
  explicit Stream(void* handle) : handle_(handle) {}
  void* handle() const { return handle_; }

 private:
  void* handle_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_GPU_STREAM_H_
