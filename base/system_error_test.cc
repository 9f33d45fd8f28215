#include "lockstep/base/system_error.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(SystemError, SaysWhatIsShortAndWhatToDo) {
  EXPECT_THAT(
      SystemError(EMFILE, "can't make a timer"),
      StatusIs(absl::StatusCode::kResourceExhausted,
               "can't make a timer: Too many open files; raise the limit of "
               "open files, which `ulimit -n` shows"));
  EXPECT_THAT(
      SystemError(ENFILE, "it"),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("fs.file-max")));
  EXPECT_THAT(
      SystemError(EAGAIN, "it"),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("`ulimit -u`")));
  for (const int error : {EDQUOT, ENOBUFS, ENOMEM, ENOSPC}) {
    EXPECT_TRUE(absl::IsResourceExhausted(SystemError(error, "it"))) << error;
  }
}

TEST(SystemError, HasTheCallersCodeForAnythingElse) {
  EXPECT_THAT(SystemError(EIO, "can't read"),
              StatusIs(absl::StatusCode::kUnavailable,
                       "can't read: Input/output error"));
  EXPECT_THAT(
      SystemError(ENOENT, "can't read", absl::StatusCode::kInvalidArgument),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "can't read: No such file or directory"));
}

TEST(ShortageOfDescriptors, IsNoticed) {
  EXPECT_EQ(ShortageOfDescriptors(), 0);
  const int next = dup(0);  // the lowest number that is free
  ASSERT_GE(next, 0);
  close(next);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_EQ(ShortageOfDescriptors(), EMFILE);
  rlimit one = before;
  one.rlim_cur = next + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one), 0);
  EXPECT_EQ(ShortageOfDescriptors(1), 0);
  EXPECT_EQ(ShortageOfDescriptors(2), EMFILE);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(ShortageOfDescriptors(2), 0);
}

}  // namespace
}  // namespace lockstep
