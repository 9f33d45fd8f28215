#include "lockstep/base/quiet_thread.h"

#include <pthread.h>

#include <csignal>
#include <new>
#include <thread>  // NOLINT: what is tested

#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_base {
namespace {

bool IsBlocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

TEST(QuietThreadTest, BlocksSignalsInTheThreadAlone) {
  ASSERT_FALSE(IsBlocked(SIGTERM));
  bool blocked = false;
  bool crash_blocked = true;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(std::thread thread,
                                StartQuietThread("quiet", [&] {
                                  blocked = IsBlocked(SIGTERM);
                                  crash_blocked = IsBlocked(SIGSEGV);
                                }));
  thread.join();
  EXPECT_TRUE(blocked);
  EXPECT_FALSE(crash_blocked);
  EXPECT_FALSE(IsBlocked(SIGTERM));
}

TEST(QuietThreadDeathTest, AnExceptionEndsTheProcess) {
  const auto run = [] {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        std::thread thread,
        StartQuietThread("quiet", [] { throw std::bad_alloc(); }));
    thread.join();
  };
  EXPECT_DEATH(run(), "^quiet ran out of memory .*so Lockstep ends");
}

}  // namespace
}  // namespace lockstep::internal_base
