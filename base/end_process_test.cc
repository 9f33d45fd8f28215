#include "lockstep/base/end_process.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/memory_testing.h"

namespace lockstep {
namespace {

TEST(RunOrEnd, ReturnsWhatTheFunctionReturns) {
  EXPECT_EQ(RunOrEnd("a call", [] { return 7; }), 7);
  EXPECT_EQ(RunOrEnd("a call", [] { return absl::NotFoundError("gone"); }),
            absl::NotFoundError("gone"));
}

TEST(RunOrEndDeathTest, SaysWhatThrew) {
  EXPECT_DEATH(RunOrEnd("a call", [] { throw std::bad_alloc(); }),
               "^a call ran out of memory \\(std::bad_alloc\\), so Lockstep "
               "ends this process \\(if it is a rank, the others are told\\)"
               "\n$");
  EXPECT_DEATH(RunOrEnd("a call", [] { throw std::runtime_error("no"); }),
               "^a call threw std::runtime_error: no, so Lockstep ends");
}

TEST(RunOrEnd, NeedsNoMemory) {
  const std::bad_alloc thrown;
  const auto run = [&](const RunOut& run_out) {
    run_out();
    RunOrEnd("a call with a name that is too long for a short string",
             [&] { throw thrown; });
    return absl::OkStatus();
  };
  ExpectWithoutMemory(
      {{"RunOrEnd", run, WithoutMemory::kEnds,
        "^a call with a name .* short string, so Lockstep ends"}});
}

// Makes the standard error of this process a pipe that is full, so that any
// further write waits for ever.
void BlockStandardError() {
  int ends[2];
  if (pipe(ends) != 0) std::_Exit(2);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  const std::array<char, 4096> bytes = {};
  while (write(ends[1], bytes.data(), bytes.size()) > 0) {
  }
  while (write(ends[1], bytes.data(), 1) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
  dup2(ends[1], STDERR_FILENO);
}

// The process goes on as long as somebody writes its core file, or does not
// read its standard error.
TEST(RunOrEnd, EndsConnectionsBeforeTheProcess) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // ends a child that does not end its connection
    close(ends[0]);
    const ClosedInForks connection(ends[1]);
    BlockStandardError();
    RunOrEnd("a call", [] { throw std::bad_alloc(); });
  }
  close(ends[1]);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  EXPECT_EQ(waitpid(child, nullptr, WNOHANG), 0) << "the process has ended";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
}

}  // namespace
}  // namespace lockstep
