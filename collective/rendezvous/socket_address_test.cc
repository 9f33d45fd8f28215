#include "lockstep/collective/rendezvous/socket_address.h"

#include <sys/socket.h>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_collective {
namespace {

using ::testing::HasSubstr;

TEST(SocketAddress, HasAHostAndAPort) {
  for (const char* host : {"10.0.0.7", "fd00::7", "::1"}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const SocketAddress address,
                                  SocketAddressOf(host, 29500));
    EXPECT_EQ(address.port(), 29500);
    EXPECT_EQ(HostOf(address.get()), host);
  }
}

TEST(SocketAddress, IsNoName) {
  EXPECT_THAT(SocketAddressOf("localhost", 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'localhost' should be an IP address")));
  sockaddr other = {};
  other.sa_family = AF_UNIX;
  EXPECT_EQ(HostOf(&other), "");
  EXPECT_EQ(HostOf(nullptr), "");
}

}  // namespace
}  // namespace lockstep::internal_collective
