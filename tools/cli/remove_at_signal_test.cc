#include "lockstep/tools/cli/remove_at_signal.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

class RemoveAtSignalTest : public testing::Test {
 protected:
  RemoveAtSignalTest() : folder_(testing::TempDir() + "/unfinished") {
    // A process that was forked from several threads has only one of them.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/a.npy") << "1";
  }

  const std::string folder_;
};

TEST_F(RemoveAtSignalTest, RemovesAFolderAndEndsByTheSignal) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    std::filesystem::create_directories(folder_ + "/b");
    EXPECT_EXIT(
        {
          const RemoveAtSignal unfinished(folder_);
          kill(getpid(), signal);
          while (true) pause();
        },
        testing::KilledBySignal(signal), "");
    EXPECT_FALSE(std::filesystem::exists(folder_)) << signal;
  }
}

TEST_F(RemoveAtSignalTest, RemovesNothingWhenTheWorkIsDone) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  { const RemoveAtSignal unfinished(folder_); }
  EXPECT_TRUE(std::filesystem::exists(folder_));
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGINT), sigismember(&before, SIGINT));
}

TEST_F(RemoveAtSignalTest, SignalsThatAreIgnoredStayIgnored) {
  EXPECT_EXIT(
      {
        signal(SIGHUP, SIG_IGN);
        {
          const RemoveAtSignal unfinished(folder_);
          kill(getpid(), SIGHUP);
        }
        _exit(std::filesystem::exists(folder_) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep
