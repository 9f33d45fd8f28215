// Holds OpenMP and MKL to one thread on the calling thread, if the process has
// them, while it lives. Internal.
#ifndef LOCKSTEP_LOADER_NESTED_THREADS_H_
#define LOCKSTEP_LOADER_NESTED_THREADS_H_

#include "lockstep/base/language.h"

namespace lockstep::internal_loader {

class NestedThreads {
 public:
  // Does nothing unless `limit`.
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
