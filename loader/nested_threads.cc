#include "lockstep/loader/nested_threads.h"

#include <dlfcn.h>

namespace lockstep::internal_loader {
namespace {

// These functions are looked up in the libraries that the process has loaded,
// so that none is a dependency. All act on the calling thread only. OpenBLAS's
// function does not, so it is not used; an OpenBLAS that is built on OpenMP
// follows OpenMP's number.
struct Functions {
  using Get = int (*)();
  using Set = void (*)(int);
  using Exchange = int (*)(int);

  Get omp_get =
      reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  Set omp_set =
      reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  Exchange mkl_set = reinterpret_cast<Exchange>(
      dlsym(RTLD_DEFAULT, "MKL_Set_Num_Threads_Local"));
};

const Functions& Found() {
  static const Functions functions;
  return functions;
}

}  // namespace

NestedThreads::NestedThreads(bool limit) : limit_(limit) {
  if (!limit_) return;
  const Functions& found = Found();
  if (found.omp_get != nullptr && found.omp_set != nullptr) {
    omp_threads_ = found.omp_get();
    found.omp_set(1);
  }
  if (found.mkl_set != nullptr) mkl_threads_ = found.mkl_set(1);
}

NestedThreads::~NestedThreads() {
  if (!limit_) return;
  const Functions& found = Found();
  if (omp_threads_ > 0) found.omp_set(omp_threads_);
  if (found.mkl_set != nullptr) found.mkl_set(mkl_threads_);
}

}  // namespace lockstep::internal_loader
