#include "lockstep/base/write_all.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>  // NOLINT: the reader of a pipe

#include "gtest/gtest.h"
#include "lockstep/base/descriptor.h"

namespace lockstep {
namespace {

// A pipe holds less than this, so that it takes several calls.
TEST(WriteAll, WritesMoreThanTheSystemTakesAtATime) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  const std::string bytes(1000000, 'x');
  std::string got;
  std::thread reader([&] {
    char piece[777];
    for (ssize_t size = 1; size > 0;) {
      size = ::read(from.fd(), piece, sizeof(piece));
      if (size > 0) got.append(piece, static_cast<size_t>(size));
    }
  });
  EXPECT_TRUE(WriteAll(to.fd(), bytes));
  EXPECT_TRUE(WriteAll(to.fd(), ""));
  to.Close();
  reader.join();
  EXPECT_EQ(got, bytes);
}

TEST(WriteAll, LeavesTheReasonInErrno) {
  const Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.ok());
  EXPECT_FALSE(WriteAll(full.fd(), "x"));
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_TRUE(WriteAll(full.fd(), ""));
  EXPECT_FALSE(WriteAll(-1, "x"));
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace lockstep
