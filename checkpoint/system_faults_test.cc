// These tests let calls of the system fail. This program has functions of the
// same names in their place.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>  // NOLINT: ranks
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/local/local_group.h"

namespace {

// The number of calls of open and fsync that a signal interrupts, and the error
// of unlink.
int interrupted_opens = 0;
int interrupted_syncs = 0;
int unlink_error = 0;

// The time that writes of this many bytes take.
constexpr size_t kSlowWrite = size_t{1} << 20;
absl::Duration write_takes;

bool IsInterrupted(int& left) {
  if (left == 0) return false;
  --left;
  errno = EINTR;
  return true;
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
  if (IsInterrupted(interrupted_opens)) return -1;
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

extern "C" int fsync(int fd) {
  if (IsInterrupted(interrupted_syncs)) return -1;
  return static_cast<int>(syscall(SYS_fsync, fd));
}

extern "C" ssize_t pwrite(int fd, const void* bytes, size_t size, off_t at) {
  if (size == kSlowWrite) absl::SleepFor(write_takes);
  return syscall(SYS_pwrite64, fd, bytes, size, at);
}

extern "C" int unlink(const char* path) noexcept {
  if (unlink_error != 0) {
    errno = unlink_error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class SystemFaults : public testing::Test {
 protected:
  SystemFaults() {
    std::string folder = testing::TempDir() + "/faultsXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    options_.path = folder + "/model";
    options_.keep = 1;
    LocalGroupOptions group;
    group.size = 1;
    auto ranks = MakeLocalGroup(group);
    LOCKSTEP_EXPECT_OK(ranks);
    group_ = std::move((*ranks)[0]);
  }

  absl::Status Save(int64_t steps) {
    std::vector<float> values(3);
    Checkpoint checkpoint(*group_, options_, [this](absl::string_view text) {
      logged_.emplace_back(text);
    });
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("weights", &values));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
    logged_.clear();
    for (int64_t step = 1; step <= steps; ++step) {
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(step));
    }
    return checkpoint.Wait();
  }

  CheckpointOptions options_;
  std::unique_ptr<Communicator> group_;
  std::vector<std::string> logged_;
};

TEST_F(SystemFaults, SignalsDoNotEndAJob) {
  for (const bool background : {true, false}) {
    options_.background = background;
    options_.path += "'";
    interrupted_opens = 100;
    interrupted_syncs = 3;
    LOCKSTEP_EXPECT_OK(Save(1));
    EXPECT_EQ(interrupted_opens, 0);
    EXPECT_EQ(interrupted_syncs, 0);
  }
}

TEST_F(SystemFaults, FilesThatStayAreToldOnce) {
  for (const bool background : {true, false}) {
    options_.background = background;
    options_.path += "'";
    unlink_error = EIO;
    const absl::Status saved = Save(5);
    unlink_error = 0;
    LOCKSTEP_EXPECT_OK(saved);
    EXPECT_THAT(
        logged_,
        ElementsAre(AllOf(
            HasSubstr("can't remove "),
            HasSubstr(
                ".000000000001, which is no longer needed: Input/output"))));
  }
}

// A slow disk of rank 0 must not expire the parts of other ranks.
TEST_F(SystemFaults, PartsHaveNoDeadline) {
  options_.background = false;
  // The deadline grows until it is long enough for everything else.
  for (absl::Duration deadline = absl::Milliseconds(50);; deadline *= 4) {
    options_.path += "'";
    write_takes = 3 * deadline;
    LocalGroupOptions group;
    group.size = 2;
    group.deadline = deadline;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto ranks, MakeLocalGroup(group));
    std::vector<absl::Status> ended(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const auto save = [&]() -> absl::Status {
          std::vector<uint8_t> part(kSlowWrite);
          Checkpoint checkpoint(*ranks[rank], options_);
          LOCKSTEP_RETURN_IF_ERROR(checkpoint.AddPart("part", &part));
          LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
          return checkpoint.Save(1);
        };
        ended[rank] = save();
        if (!ended[rank].ok()) ranks[rank]->Abort(ended[rank]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (ended[0].ok() && ended[1].ok()) break;
    for (const absl::Status& status : ended) {
      ASSERT_THAT(status.message(), Not(HasSubstr("saving step")));
    }
  }
  write_takes = absl::ZeroDuration();
}

}  // namespace
}  // namespace lockstep
