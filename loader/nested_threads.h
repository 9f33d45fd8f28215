// Limits OpenMP and MKL to one thread for work of the calling thread. Internal.
#ifndef LOCKSTEP_LOADER_NESTED_THREADS_H_
#define LOCKSTEP_LOADER_NESTED_THREADS_H_

#include "lockstep/base/language.h"

namespace lockstep::internal_loader {

// While an object lives, OpenMP and MKL use one thread for the work of the
// thread that made it, if the process has loaded these libraries. Requires: the
// destructor runs on the thread that made the object.
//
// Thread-safety: thread-compatible.
class NestedThreads {
 public:
  // Does nothing if `limit` is false.
  explicit NestedThreads(bool limit);
  ~NestedThreads();

  NestedThreads(const NestedThreads&) = delete;
  NestedThreads& operator=(const NestedThreads&) = delete;

 private:
  const bool limit_;
  int omp_threads_ = 0;
  int mkl_threads_ = 0;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_NESTED_THREADS_H_
