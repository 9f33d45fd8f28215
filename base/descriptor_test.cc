#include "lockstep/base/descriptor.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(Descriptor, ClosesWhatItOwns) {
  int fd;
  {
    const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
    ASSERT_TRUE(null.ok());
    fd = null.fd();
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST(Descriptor, ClosesOnce) {
  Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(null.Close(), 0);
  EXPECT_FALSE(null.ok());
  EXPECT_EQ(null.fd(), -1);
  EXPECT_EQ(null.Close(), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST(Descriptor, HasOneOwner) {
  Descriptor first(open("/dev/null", O_RDWR | O_CLOEXEC));
  const int fd = first.fd();
  {
    const Descriptor second(std::move(first));
    EXPECT_EQ(second.fd(), fd);
    EXPECT_FALSE(first.ok());  // NOLINT: what is left of it
  }
  EXPECT_FALSE(IsOpen(fd));
  EXPECT_FALSE(Descriptor().ok());
}

}  // namespace
}  // namespace lockstep
