#include "lockstep/base/stop_signals.h"

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

// Each test runs in a process of its own, since it changes the handlers.
#define EXPECT_IN_PROCESS(...)              \
  EXPECT_EXIT(                              \
      {                                     \
        const auto body = []() __VA_ARGS__; \
        ::_exit(body() ? 0 : 1);            \
      },                                    \
      testing::ExitedWithCode(0), "")

TEST(StopSignals, NoteTheFirstOfEachKind) {
  EXPECT_IN_PROCESS({
    const StopSignals signals;
    if (signals.requested()) return false;
    ::raise(SIGTERM);
    if (!signals.requested()) return false;
    ::raise(SIGINT);
    return signals.requested();
  });
}

TEST(StopSignals, ASecondOneEndsTheProcess) {
  for (const int signal : {SIGTERM, SIGINT}) {
    EXPECT_EXIT(
        {
          const StopSignals signals;
          ::raise(signal);
          ::raise(signal);
          ::_exit(0);
        },
        testing::KilledBySignal(signal), "");
  }
}

TEST(StopSignals, CallTheFunction) {
  EXPECT_IN_PROCESS({
    std::atomic<int> calls = 0;
    const StopSignals signals([&calls] { ++calls; });
    ::raise(SIGTERM);
    ::raise(SIGINT);
    return calls == 2;
  });
}

TEST(StopSignals, AnIgnoredSigintStaysSo) {
  EXPECT_IN_PROCESS({
    ::signal(SIGINT, SIG_IGN);
    const StopSignals signals;
    ::raise(SIGINT);
    ::raise(SIGINT);
    return !signals.requested();
  });
}

TEST(StopSignals, TheFirstOneAfterTheEndDoesNothing) {
  EXPECT_IN_PROCESS({
    std::atomic<int> calls = 0;
    {
      const StopSignals signals([&calls] { ++calls; });
    }
    ::raise(SIGTERM);
    const StopSignals others;
    return calls == 0 && !others.requested();
  });
}

TEST(StopSignals, EndAForkedProcess) {
  EXPECT_IN_PROCESS({
    const StopSignals signals;
    const pid_t child = ::fork();
    if (child == 0) {
      ::raise(SIGTERM);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM &&
           !signals.requested();
  });
}

}  // namespace
}  // namespace lockstep
