#include "lockstep/base/notifier.h"

#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>  // NOLINT: yields
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"

namespace lockstep::internal_base {
namespace {

using ::testing::ElementsAre;

// A log that blocks until it is released.
// Thread-safety: thread-safe.
class BlockedLog {
 public:
  void operator()(absl::string_view text) {
    MutexLock lock(mutex_);
    lines_.emplace_back(text);
    changed_.NotifyAll();
    while (is_blocked_) changed_.Wait(mutex_);
    written_ = lines_.size();
    changed_.NotifyAll();
  }

  // Waits until the log has been called.
  void AwaitCall() {
    MutexLock lock(mutex_);
    while (lines_.empty()) changed_.Wait(mutex_);
  }

  // Lets the log go, and waits until it has returned from its first call.
  void Release() {
    MutexLock lock(mutex_);
    is_blocked_ = false;
    changed_.NotifyAll();
    while (written_ == 0) changed_.Wait(mutex_);
  }

  std::vector<std::string> lines() {
    MutexLock lock(mutex_);
    return lines_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool is_blocked_ ABSL_GUARDED_BY(mutex_) = true;
  size_t written_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

TEST(NotifierTest, WritesLinesInTheirOrder) {
  std::vector<std::string> lines;
  Notifier notifier([&](absl::string_view text) { lines.emplace_back(text); });
  EXPECT_TRUE(notifier.Flush(absl::ZeroDuration()));
  for (int i = 0; i < 100; ++i) notifier.WriteLine(absl::StrCat(i));
  EXPECT_TRUE(notifier.Flush(absl::Hours(1)));
  ASSERT_EQ(lines.size(), 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(lines[i], absl::StrCat(i));
}

TEST(NotifierTest, ALogThatBlocksHoldsNobodyUp) {
  const auto log = std::make_shared<BlockedLog>();
  Notifier notifier([log](absl::string_view text) { (*log)(text); });
  notifier.WriteLine("first");
  log->AwaitCall();
  notifier.WriteLine("second");
  EXPECT_FALSE(notifier.Flush(absl::ZeroDuration()));
  log->Release();
  EXPECT_TRUE(notifier.Flush(absl::Hours(1)));
  EXPECT_THAT(log->lines(), ElementsAre("first", "second"));
}

TEST(NotifierTest, LinesThatAreDroppedAreTold) {
  const auto log = std::make_shared<BlockedLog>();
  Notifier notifier([log](absl::string_view text) { (*log)(text); });
  notifier.WriteLine("first");
  log->AwaitCall();
  for (size_t i = 0; i < Notifier::kMostLines + 3; ++i) {
    notifier.WriteLine(absl::StrCat(i));
  }
  log->Release();
  EXPECT_TRUE(notifier.Flush(absl::Hours(1)));
  const std::vector<std::string> lines = log->lines();
  ASSERT_EQ(lines.size(), Notifier::kMostLines + 2);
  EXPECT_EQ(lines[1],
            "3 lines of the log were dropped here, because it was blocked");
  EXPECT_EQ(lines[2], "3");
  EXPECT_EQ(lines.back(), absl::StrCat(Notifier::kMostLines + 2));
}

TEST(NotifierTest, AnOutputThatBlocksIsAwaitedOnce) {
  const auto log = std::make_shared<BlockedLog>();
  Notifier notifier([log](absl::string_view text) { (*log)(text); });
  notifier.WriteLine("first");
  log->AwaitCall();
  EXPECT_FALSE(notifier.Flush(kLastPatience));
  notifier.WriteLine("second");
  EXPECT_FALSE(notifier.Flush(absl::InfiniteDuration()));
  log->Release();
  // The thread may not have noticed yet that the output has returned.
  while (!notifier.Flush(absl::Hours(1))) std::this_thread::yield();
  EXPECT_THAT(log->lines(), ElementsAre("first", "second"));
}

// The notifier ends while its output blocks, and writes nothing more.
TEST(NotifierTest, EndsWhileTheLogBlocks) {
  const auto log = std::make_shared<BlockedLog>();
  {
    Notifier notifier([log](absl::string_view text) { (*log)(text); });
    notifier.WriteLine("first");
    log->AwaitCall();
    notifier.WriteLine("second");
  }
  log->Release();
  EXPECT_THAT(log->lines(), ElementsAre("first"));
}

TEST(NotifierTest, WritesEverythingBeforeItEnds) {
  std::vector<std::string> lines;
  {
    Notifier notifier(
        [&](absl::string_view text) { lines.emplace_back(text); });
    notifier.WriteLine("only");
    EXPECT_TRUE(notifier.Flush(absl::Hours(1)));
    notifier.ShowBar("without a bar");
  }
  EXPECT_THAT(lines, ElementsAre("only"));
}

TEST(NotifierTest, ALogThatThrowsGetsTheNextLine) {
  std::vector<std::string> lines;
  Notifier notifier([&](absl::string_view text) {
    lines.emplace_back(text);
    throw std::runtime_error("full");
  });
  notifier.WriteLine("one");
  notifier.WriteLine("two");
  EXPECT_TRUE(notifier.Flush(absl::Hours(1)));
  EXPECT_THAT(lines, ElementsAre("one", "two"));
}

TEST(NotifierTest, TextsOfTheBarReplaceEachOther) {
  const auto log = std::make_shared<BlockedLog>();
  std::vector<std::string> bars;
  Notifier notifier([log](absl::string_view text) { (*log)(text); },
                    [&](absl::string_view text) { bars.emplace_back(text); });
  notifier.WriteLine("first");
  log->AwaitCall();
  for (int i = 0; i < 10; ++i) notifier.ShowBar(absl::StrCat(i));
  log->Release();
  EXPECT_TRUE(notifier.Flush(absl::Hours(1)));
  EXPECT_THAT(bars, ElementsAre("9"));
}

// Drop waits for the owner's lines alone, and for at most a second.
TEST(NotifierTest, DropsTheLinesOfAnOwner) {
  const auto log = std::make_shared<BlockedLog>();
  std::vector<std::string> lines;
  Notifier notifier([&](absl::string_view text) {
    lines.emplace_back(text);
    if (text == "blocks") (*log)(text);
  });
  int one = 0, other = 0;
  notifier.WriteLine("first", &one);
  notifier.Drop(&one);
  notifier.WriteLine("blocks", &other);
  log->AwaitCall();
  notifier.WriteLine("second", &one);
  notifier.WriteLine("third", &other);
  notifier.Drop(&one);
  log->Release();
  while (!notifier.Flush(absl::Hours(1))) std::this_thread::yield();
  EXPECT_THAT(lines, ElementsAre("first", "blocks",
                                 "1 lines of the log were dropped here, "
                                 "because it was blocked",
                                 "third"));
}

TEST(NotifierTest, TakesNothingWhenItIsClosed) {
  std::vector<std::string> lines;
  Notifier notifier([&](absl::string_view text) { lines.emplace_back(text); });
  notifier.WriteLine("first");
  notifier.Close();
  notifier.WriteLine("second");
  notifier.Close();
  Notifier unused([&](absl::string_view text) { lines.emplace_back(text); });
  unused.Close();
  unused.WriteLine("third");
  EXPECT_THAT(lines, ElementsAre("first"));
}

TEST(NotifierTest, AForkWritesByItself) {
  std::vector<std::string> lines;
  auto notifier = std::make_unique<Notifier>(
      [&](absl::string_view text) { lines.emplace_back(text); });
  notifier->WriteLine("parent");
  EXPECT_TRUE(notifier->Flush(absl::Hours(1)));
  const pid_t child = fork();
  if (child == 0) {
    notifier->WriteLine("child");
    const bool is_written =
        notifier->Flush(absl::Hours(1)) && lines.back() == "child";
    notifier = nullptr;
    _exit(is_written ? 0 : 1);
  }
  int ended = -1;
  EXPECT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0);
}

}  // namespace
}  // namespace lockstep::internal_base
