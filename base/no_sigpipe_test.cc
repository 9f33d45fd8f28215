#include "lockstep/base/no_sigpipe.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "gtest/gtest.h"
#include "lockstep/base/descriptor.h"

namespace lockstep {
namespace {

// Without the guard, the signal would end the test process here.
TEST(NoSigpipe, AWriteFailsInPlaceOfTheProcess) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Descriptor write_end(ends[1]);
  close(ends[0]);
  {
    const NoSigpipe guard;
    EXPECT_EQ(write(write_end.fd(), "a", 1), -1);
    EXPECT_EQ(errno, EPIPE);
  }
  // No pending signal is left.
  sigset_t pending;
  ASSERT_EQ(sigpending(&pending), 0);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

// A signal that was pending before stays pending.
TEST(NoSigpipe, LeavesASignalThatWasPending) {
  sigset_t pipe_signal, before, pending;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &pipe_signal, &before), 0);
  ASSERT_EQ(pthread_kill(pthread_self(), SIGPIPE), 0);
  { const NoSigpipe guard; }
  ASSERT_EQ(sigpending(&pending), 0);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 1);
  const timespec now = {};
  EXPECT_EQ(sigtimedwait(&pipe_signal, nullptr, &now), SIGPIPE);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace lockstep
