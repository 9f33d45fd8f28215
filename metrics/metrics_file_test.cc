#include "lockstep/metrics/metrics_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MetricsFileTest : public testing::Test {
 protected:
  MetricsFileTest() {
    std::string folder = testing::TempDir() + "/metricsXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    path_ = folder + "/lines";
  }

  std::string Contents() const {
    std::ifstream file(path_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file),
                       std::istreambuf_iterator<char>());
  }
  void Put(absl::string_view bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
  }

  std::string path_;
};

TEST_F(MetricsFileTest, WhatWasAddedIsThere) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto file, MetricsFile::Open(path_));
  EXPECT_EQ(file->size(), 0);
  LOCKSTEP_EXPECT_OK(file->Add("one\n"));
  EXPECT_EQ(Contents(), "one\n");
  EXPECT_EQ(file->size(), 4);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto again, MetricsFile::Open(path_));
  EXPECT_EQ(again->size(), 4);
  LOCKSTEP_EXPECT_OK(again->Add("two\n"));
  EXPECT_EQ(Contents(), "one\ntwo\n");
}

TEST_F(MetricsFileTest, WhatWasGatheredIsThereSoon) {
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto file, MetricsFile::Open(path_));
    LOCKSTEP_EXPECT_OK(file->AddSoon("one\n"));  // the first is written at once
    EXPECT_EQ(Contents(), "one\n");
    LOCKSTEP_EXPECT_OK(file->AddSoon("two\n"));
    LOCKSTEP_EXPECT_OK(file->AddSoon("three\n"));
    LOCKSTEP_EXPECT_OK(file->Flush());
    EXPECT_EQ(Contents(), "one\ntwo\nthree\n");
    LOCKSTEP_EXPECT_OK(file->AddSoon("four\n"));
  }
  EXPECT_EQ(Contents(), "one\ntwo\nthree\nfour\n");
}

TEST_F(MetricsFileTest, ATornLineStandsAlone) {
  Put("one\ntw");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto file, MetricsFile::Open(path_));
  LOCKSTEP_EXPECT_OK(file->AddLine("three\n"));
  LOCKSTEP_EXPECT_OK(file->AddLine("four\n"));
  EXPECT_EQ(Contents(), "one\ntw\nthree\nfour\n");
  EXPECT_EQ(file->size(), 18);
}

TEST_F(MetricsFileTest, SaysWhatIsWrong) {
  EXPECT_THAT(MetricsFile::Open("/proc/none/lines").status(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("can't create /proc/none")));
  EXPECT_THAT(MetricsFile::Open("/proc/lines").status(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("can't open /proc/lines")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto full,
                                MetricsFile::Open("/dev/full"));
  EXPECT_THAT(full->Add("one\n"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("can't write metrics to /dev/full")));
}

// A forked process that outlives this one does not keep the lock, and does not
// write the lines that wait here.
TEST_F(MetricsFileTest, AForkHoldsNothing) {
  int to_child[2];
  ASSERT_EQ(pipe(to_child), 0);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto file,
                                MetricsFile::Open(path_, absl::Hours(1)));
  LOCKSTEP_ASSERT_OK(file->Lock());
  LOCKSTEP_ASSERT_OK(file->AddSoon("one\n"));
  LOCKSTEP_ASSERT_OK(file->AddSoon("two\n"));
  const pid_t child = fork();
  if (child == 0) {
    close(to_child[1]);
    const absl::Status added = file->Add("three\n");
    // One of these has the number of the file, which is closed here.
    const int first = dup(STDERR_FILENO);
    const int second = dup(STDERR_FILENO);
    file = nullptr;
    const bool is_right = absl::IsFailedPrecondition(added) &&
                          fcntl(first, F_GETFD) >= 0 &&
                          fcntl(second, F_GETFD) >= 0;
    char byte = 0;
    const bool has_ended = read(to_child[0], &byte, 1) == 0;
    _exit(is_right && has_ended ? 0 : 1);
  }
  close(to_child[0]);
  file = nullptr;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(file, MetricsFile::Open(path_));
  LOCKSTEP_EXPECT_OK(file->Lock());
  close(to_child[1]);
  int ended = 1;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(Contents(), "one\ntwo\n");
}

// A file may have at most 10 bytes here, so only a part of the second line
// fits. That part is removed, and a shorter line follows the first.
TEST_F(MetricsFileTest, WhatDoesNotFitIsTakenBack) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {10, 10};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto file = MetricsFile::Open(path_);
    const bool is_right = file.ok() && (*file)->Add("one 1\n").ok() &&
                          !(*file)->Add("two 2\n").ok() &&
                          (*file)->size() == 6 && (*file)->Add("3 3\n").ok();
    _exit(is_right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Contents(), "one 1\n3 3\n");
}

// The reader of a pipe may close it, and Open does not wait for a missing
// reader.
TEST_F(MetricsFileTest, APipeMayHaveNoReader) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(MetricsFile::Open(path_).status(), Not(IsOk()));
  const int reader = open(path_.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto file, MetricsFile::Open(path_));
  LOCKSTEP_EXPECT_OK(file->AddLine("one\n"));
  close(reader);
  EXPECT_THAT(file->AddLine("two\n"), Not(IsOk()));
}

// A reader that stands still holds nobody up.
TEST_F(MetricsFileTest, APipeMayBeFull) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const int reader = open(path_.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto file, MetricsFile::Open(path_));
  const std::string line = std::string(1000, 'x') + "\n";
  absl::Status added;
  while (added.ok()) added = file->AddLine(line);
  EXPECT_THAT(added, StatusIs(absl::StatusCode::kUnavailable,
                              HasSubstr("its reader does not read")));
  std::string read(1 << 20, '\0');
  EXPECT_GT(::read(reader, read.data(), read.size()), 0);
  LOCKSTEP_EXPECT_OK(file->AddLine(line));
  close(reader);
}

TEST_F(MetricsFileTest, TheStandardOutputMayBeAFullPipe) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    const auto file = MetricsFile::StandardOutput();
    const std::string line = std::string(10000, 'x') + "\n";
    absl::Status added;
    while (added.ok()) added = file->AddLine(line);
    _exit(absl::IsUnavailable(added) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(ends[0]);
  close(ends[1]);
}

// The program's own output and the metrics appear in the order in which they
// were written.
TEST_F(MetricsFileTest, TheStandardOutputKeepsTheOrder) {
  const pid_t child = fork();
  if (child == 0) {
    const bool is_opened = std::freopen(path_.c_str(), "w", stdout) != nullptr;
    std::printf("mine\n");
    const bool is_added = MetricsFile::StandardOutput()->Add("metrics\n").ok();
    std::printf("mine\n");
    std::fflush(stdout);
    _exit(is_opened && is_added ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Contents(), "mine\nmetrics\nmine\n");
}

}  // namespace
}  // namespace lockstep::internal_metrics
