#include "lockstep/loader/nested_threads.h"

#include <dlfcn.h>

#include "gtest/gtest.h"

namespace {
thread_local int omp_threads = 8;
thread_local int mkl_threads = 0;  // 0: the number of the process
}  // namespace

// These functions replace those of OpenMP and MKL for the dynamic linker.
extern "C" {
__attribute__((visibility("default"))) int omp_get_max_threads() {
  return omp_threads;
}
__attribute__((visibility("default"))) void omp_set_num_threads(int threads) {
  omp_threads = threads;
}
__attribute__((visibility("default"))) int MKL_Set_Num_Threads_Local(
    int threads) {
  const int before = mkl_threads;
  mkl_threads = threads;
  return before;
}
}

namespace lockstep::internal_loader {
namespace {

TEST(NestedThreads, AreHeldToOneAndGivenBack) {
  ASSERT_NE(dlsym(RTLD_DEFAULT, "omp_set_num_threads"), nullptr);
  {
    const NestedThreads nested(/*limit=*/true);
    EXPECT_EQ(omp_threads, 1);
    EXPECT_EQ(mkl_threads, 1);
  }
  EXPECT_EQ(omp_threads, 8);
  EXPECT_EQ(mkl_threads, 0);
}

TEST(NestedThreads, AreLeftAloneUnlessAskedFor) {
  const NestedThreads nested(/*limit=*/false);
  EXPECT_EQ(omp_threads, 8);
}

}  // namespace
}  // namespace lockstep::internal_loader
