// These tests run the session example as a user would.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/execute.h"

namespace examples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kProgram[] = "examples/session --config=examples/session.toml ";

TEST(SessionExample, TrainsOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3}) {
    const Ended ended = Launch(ranks, kProgram);
    EXPECT_EQ(ended.code, 0) << ended.printed;
    EXPECT_THAT(
        ended.printed,
        AllOf(HasSubstr("epoch 0: 21 steps in "), HasSubstr("epoch 5: "),
              HasSubstr("test after 126 steps: loss "),
              HasSubstr(" over 1003 samples\n"), Not(HasSubstr("epoch 6"))));
  }
}

TEST(SessionExample, NeedsNoLauncher) {
  const Ended ended = Execute(std::string(kProgram) + "--set trainer.epochs=1");
  EXPECT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(ended.printed, HasSubstr("test after 21 steps: loss "));
}

TEST(SessionExample, HelpsBeforeItBegins) {
  const Ended help = Execute("examples/session --help");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.printed,
              AllOf(HasSubstr("usage: examples/session [--config=FILE]"),
                    HasSubstr("learning_rate = 0.1\n")));
  const Ended wrong = Execute(std::string(kProgram) + "--set trainer.epoch=1");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.printed, HasSubstr("did you mean 'epochs'?"));
  const Ended without = Execute("examples/session");
  EXPECT_EQ(without.code, 2);
  EXPECT_THAT(without.printed, HasSubstr("no table [loader.train]"));
  const Ended late =
      Execute(std::string(kProgram) + "--set loader.train.dataset.sise=1");
  EXPECT_EQ(late.code, 2);
  EXPECT_THAT(late.printed, HasSubstr("dataset 'points'"));
  const Ended group = Execute(std::string(kProgram) + "--set group.name=shmm");
  EXPECT_EQ(group.code, 2);
  EXPECT_THAT(group.printed, HasSubstr("did you mean 'shm'?"));
}

// Runs the example for far too many epochs, and sends it the signals, each when
// it reports once more that it trains. Sets `sent` to the number of these.
Ended Interrupt(const std::vector<int>& signals, const std::string& path = "",
                size_t* sent = nullptr) {
  const std::string checkpoint = "checkpoint.path=" + path;
  int printed[2];
  EXPECT_EQ(pipe(printed), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(printed[1], STDERR_FILENO);
    close(printed[0]);
    execl("examples/session", "examples/session",
          "--config=examples/session.toml", "--set",
          "trainer.epochs=1000000000", "--set", checkpoint.c_str(), nullptr);
    _exit(127);
  }
  close(printed[1]);
  Ended ended;
  size_t next = 0;   // the signal
  size_t known = 0;  // the bytes that were printed before the last signal
  char bytes[4096];
  for (;;) {
    const ssize_t got = read(printed[0], bytes, sizeof(bytes));
    if (got <= 0) break;
    ended.printed.append(bytes, got);
    if (next == signals.size()) continue;
    if (ended.printed.find("loss", known) == std::string::npos) continue;
    EXPECT_EQ(kill(child, signals[next++]), 0);
    known = ended.printed.size();
  }
  if (sent != nullptr) *sent = next;
  close(printed[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

TEST(SessionExample, StopsAfterAStepAtSignals) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const Ended ended = Interrupt({signal});
    EXPECT_EQ(ended.code, 143) << ended.printed;
    EXPECT_THAT(ended.printed, HasSubstr("as was asked "
                                         "on 1 of 1 ranks\n"));
  }
}

// A shell ignores SIGINT in programs that it starts in the background.
TEST(SessionExample, IgnoresWhatWasIgnored) {
  struct sigaction before = {};
  struct sigaction ignored = {};
  ignored.sa_handler = SIG_IGN;
  ASSERT_EQ(sigaction(SIGINT, &ignored, &before), 0);
  size_t sent = 0;
  const Ended ended = Interrupt({SIGINT, SIGINT, SIGTERM}, "", &sent);
  ASSERT_EQ(sigaction(SIGINT, &before, nullptr), 0);
  EXPECT_EQ(ended.code, 143);
  EXPECT_EQ(sent, 3);
}

// The reader of the standard error, perhaps a paused terminal, takes nothing
// from the beginning on.
TEST(SessionExample, TrainsWhereNobodyReadsItsLog) {
  for (const char* const setting :
       {"trainer.epochs=2", "loader.train.dataset.sise=1"}) {
    int printed[2];
    ASSERT_EQ(pipe(printed), 0);
    ASSERT_EQ(fcntl(printed[1], F_SETFL, O_NONBLOCK), 0);
    while (write(printed[1], "full", 4) > 0) {
    }
    ASSERT_EQ(fcntl(printed[1], F_SETFL, 0), 0);
    const pid_t child = fork();
    if (child == 0) {
      dup2(printed[1], STDERR_FILENO);
      execl("examples/session", "examples/session",
            "--config=examples/session.toml", "--set", setting, nullptr);
      _exit(127);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status),
              std::string(setting) == "trainer.epochs=2" ? 0 : 2);
    close(printed[0]);
    close(printed[1]);
  }
}

TEST(SessionExample, VerifiesThatItGoesOnExactly) {
  const Ended ended = Launch(2, std::string(kProgram) + "--verify=20");
  EXPECT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(ended.printed, HasSubstr("goes on exactly: after 40 steps"));
  const Ended none = Execute(std::string(kProgram) + "--verify=0");
  EXPECT_EQ(none.code, 2) << none.printed;
  EXPECT_THAT(none.printed, HasSubstr("from 1 on, but is '0'"));
}

TEST(SessionExample, GoesOnWhereItStoppedOrWasKilled) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    std::string folder = testing::TempDir() + "/sessionXXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    const std::string path = folder + "/points";
    EXPECT_EQ(Interrupt({signal}, path).code, signal == SIGTERM ? 143 : -1);
    const Ended ended = Launch(3, kProgram + ("--set trainer.epochs=1 --set "
                                              "checkpoint.path=" +
                                              path));
    EXPECT_EQ(ended.code, 0) << ended.printed;
    EXPECT_THAT(ended.printed,
                AllOf(HasSubstr("[rank 0] goes on from " + path + ".0000"),
                      HasSubstr("trainer.epochs was 1000000000, and is 1")));
  }
}

}  // namespace
}  // namespace examples
