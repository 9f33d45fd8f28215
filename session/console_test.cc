#include "lockstep/session/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace lockstep::internal_session {
namespace {

// A fixture with a file in place of a terminal.
class ConsoleTest : public testing::Test {
 protected:
  ConsoleTest() : file_(std::tmpfile()) { EXPECT_NE(file_, nullptr); }
  ~ConsoleTest() override { std::fclose(file_); }

  std::string Written() {
    std::string bytes(4096, '\0');
    std::rewind(file_);
    bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file_));
    return bytes;
  }

  FILE* const file_;
};

TEST_F(ConsoleTest, LinesAreLines) {
  Console console(fileno(file_), /*has_bar=*/false);
  console.WriteLine("one");
  console.ShowBar("a bar");
  console.WriteLine("two");
  console.ShowBar("");
  EXPECT_EQ(Written(), "one\ntwo\n");
}

// The reader of the standard error may go away. SIGPIPE would end the process.
TEST_F(ConsoleTest, OutlivesItsReader) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Console console(ends[1], /*has_bar=*/true);
  close(ends[0]);
  console.WriteLine("one");
  console.ShowBar("1/2");
  EXPECT_EQ(write(ends[1], "", 0), 0);
  close(ends[1]);
}

TEST_F(ConsoleTest, TheBarStaysBelowTheLines) {
  Console console(fileno(file_), /*has_bar=*/true);
  console.ShowBar("");
  console.WriteLine("one");
  console.ShowBar("1/2");
  console.WriteLine("two");
  console.ShowBar("2/2");
  console.ShowBar("");
  console.WriteLine("three");
  EXPECT_EQ(Written(),
            "one\n"
            "\r\x1b[K1/2"
            "\r\x1b[Ktwo\n1/2"
            "\r\x1b[K2/2"
            "\r\x1b[K"
            "three\n");
}

// A file has no width, so the console assumes a terminal of 80 columns.
TEST_F(ConsoleTest, TheBarIsAsLongAsTheTerminalIsWide) {
  Console console(fileno(file_), /*has_bar=*/true);
  console.ShowBar(std::string(79, 'a') + "b");
  EXPECT_EQ(Written(), "\r\x1b[K" + std::string(79, 'a'));
}

TEST_F(ConsoleTest, TheBarHasWholeFields) {
  const std::string word(60, 'a');
  Console console(fileno(file_), /*has_bar=*/true);
  console.ShowBar(word + ", 0:24 left, loss 0.25");
  console.ShowBar(word + ", 0:24 left, loss 1");
  EXPECT_EQ(Written(), "\r\x1b[K" + word + ", 0:24 left" + "\r\x1b[K" + word +
                           ", 0:24 left, loss 1");
}

// Returns true if the standard error has a bar, in a child process whose
// standard error is `file` and whose TERM is `kind`.
bool HasBar(int file, const char* kind) {
  const pid_t child = fork();
  if (child == 0) {
    dup2(file, STDERR_FILENO);
    if (kind == nullptr) {
      unsetenv("TERM");
    } else {
      setenv("TERM", kind, 1);
    }
    _exit(Console::StandardError()->has_bar() ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) == 1;
}

TEST_F(ConsoleTest, ATerminalHasABar) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const int screen = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  ASSERT_GE(screen, 0);
  EXPECT_TRUE(HasBar(screen, "xterm"));
  EXPECT_FALSE(HasBar(screen, "dumb"));
  EXPECT_FALSE(HasBar(screen, nullptr));
  EXPECT_FALSE(HasBar(fileno(file_), "xterm"));
  close(screen);
  close(terminal);
}

// The width of a terminal may change.
TEST_F(ConsoleTest, TheBarFollowsTheTerminal) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  FILE* const screen = std::fopen(ptsname(terminal), "r+");
  ASSERT_NE(screen, nullptr);
  Console console(fileno(screen), /*has_bar=*/true);
  const winsize narrow = {24, 4, 0, 0};
  ASSERT_EQ(ioctl(terminal, TIOCSWINSZ, &narrow), 0);
  console.ShowBar("abcdef");
  const winsize wide = {24, 6, 0, 0};
  ASSERT_EQ(ioctl(terminal, TIOCSWINSZ, &wide), 0);
  console.ShowBar("abcdef");
  const std::string expected = "\r\x1b[Kabc\r\x1b[Kabcde";
  std::string shown;
  char byte = 0;
  pollfd ready = {terminal, POLLIN, 0};
  while (shown.size() < expected.size() && poll(&ready, 1, 60'000) == 1 &&
         read(terminal, &byte, 1) == 1) {
    shown += byte;
  }
  EXPECT_EQ(shown, expected);
  std::fclose(screen);
  close(terminal);
}

TEST(StandardErrorNotifierTest, AForkHasAStandardErrorOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer can't start threads after a fork";
#endif
  const auto parents = StandardErrorNotifier();
  parents->WriteLine("parent");
  EXPECT_TRUE(parents->Flush(absl::Hours(1)));
  EXPECT_EQ(StandardErrorNotifier(), parents);
  const pid_t child = fork();
  if (child == 0) {
    const auto own = StandardErrorNotifier();
    own->WriteLine("child");
    _exit(own != parents && own->Flush(absl::Hours(1)) ? 0 : 1);
  }
  int ended = -1;
  EXPECT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0);
}

}  // namespace
}  // namespace lockstep::internal_session
