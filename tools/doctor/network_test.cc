#include "lockstep/tools/doctor/network.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// A socket that listens at a free port of an address.
struct Listener {
  explicit Listener(uint32_t address) {
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(address);
    socklen_t size = sizeof(name);
    auto* const generic = reinterpret_cast<sockaddr*>(&name);
    EXPECT_EQ(bind(socket.fd(), generic, size), 0);
    EXPECT_EQ(listen(socket.fd(), 1), 0);
    EXPECT_EQ(getsockname(socket.fd(), generic, &size), 0);
    port = ntohs(name.sin_port);
  }

  Descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  int port = 0;
};

TEST(Network, NamesTheProcessThatHasThePort) {
  for (const uint32_t address : {INADDR_LOOPBACK, INADDR_ANY}) {
    const Listener listener(address);
    const NetworkFacts facts =
        ReadNetworkFacts(absl::StrCat("127.0.0.1:", listener.port), "");
    EXPECT_THAT(facts.listener,
                HasSubstr(absl::StrCat("(pid ", getpid(), ")")));
    EXPECT_EQ(facts.host, "127.0.0.1");
    EXPECT_EQ(facts.port, listener.port);
    EXPECT_THAT(facts.source, IsOkAndHolds("127.0.0.1"));
    // Another address of this machine does not have it.
    if (address == INADDR_LOOPBACK) {
      EXPECT_EQ(ReadNetworkFacts(absl::StrCat("127.0.0.2:", listener.port), "")
                    .listener,
                "");
    }
  }
}

TEST(Network, DoesNotTakeTheFreePort) {
  int port = 0;
  { port = Listener(INADDR_LOOPBACK).port; }
  EXPECT_EQ(ReadNetworkFacts(absl::StrCat("127.0.0.1:", port), "").listener,
            "");
}

TEST(Network, ReadsTheTablesOfTheKernel) {
  const std::string root = testing::TempDir() + "/network";
  std::filesystem::create_directories(root + "/proc/net");
  // Port 29500 is 733C. The first is at 10.0.0.7, the second at [::1], and the
  // third has a connection and does not listen.
  std::ofstream(root + "/proc/net/tcp")
      << "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when "
         "retrnsmt   uid  timeout inode\n"
         "   0: 0700000A:733C 00000000:0000 0A 00000000:00000000 00:00000000 "
         "00000000  1000        0 101 1 0 100 0 0 10 0\n"
         "   1: 0100007F:733D 00000000:0000 01 00000000:00000000 00:00000000 "
         "00000000  1000        0 102 1 0 100 0 0 10 0\n"
         "   2: 0100007F:733F 00000000:0000 06 00000000:00000000 00:00000000 "
         "00000000  1000        0 0 1 0 100 0 0 10 0\n"
         "   3: nonsense\n";
  std::ofstream(root + "/proc/net/tcp6")
      << "   0: 00000000000000000000000001000000:733E "
         "00000000000000000000000000000000:0000 0A 00000000:00000000 "
         "00:00000000 00000000  0 0 103 1 0 100 0 0 10 0\n";
  const auto listener = [&root](const char* address) {
    return ReadNetworkFacts(address, root).listener;
  };
  // No process is shown that has the socket.
  EXPECT_EQ(listener("10.0.0.7:29500"), "another process");
  EXPECT_EQ(listener("10.0.0.8:29500"), "");
  EXPECT_EQ(listener("127.0.0.1:29501"), "");
  EXPECT_EQ(ReadNetworkFacts("127.0.0.1:29501", root).connected,
            "another process");
  EXPECT_EQ(ReadNetworkFacts("127.0.0.1:29503", root).connected, "");
  EXPECT_EQ(listener("[::1]:29502"), "another process");
  EXPECT_EQ(listener("127.0.0.1:29502"), "");
}

TEST(Network, KnowsTheInterfaces) {
  const NetworkFacts facts = ReadNetworkFacts("", "");
  const Interface* const loopback =
      FindInterface(facts.interfaces, "127.0.0.1");
  ASSERT_NE(loopback, nullptr);
  EXPECT_TRUE(loopback->is_loopback);
  EXPECT_THAT(loopback->addresses, Contains("127.0.0.1"));
  EXPECT_EQ(loopback->mbits, -1);
  EXPECT_EQ(FindInterface(facts.interfaces, "192.0.2.77"), nullptr);

  const std::string root = testing::TempDir() + "/speeds";
  const std::string folder = root + "/sys/class/net/";
  const std::string name = loopback->name;
  const auto speed = [&root] {
    return FindInterface(ReadNetworkFacts("", root).interfaces, "127.0.0.1")
        ->mbits;
  };
  std::filesystem::create_directories(folder + name);
  std::ofstream(folder + name + "/speed") << "25000\n";
  // Only a device has a speed, or what stands above one.
  EXPECT_EQ(speed(), -1);
  std::filesystem::create_directories(folder + name + "/lower_port");
  EXPECT_EQ(speed(), -1);
  std::filesystem::create_directories(folder + "port/device");
  EXPECT_EQ(speed(), 25000);
  std::filesystem::remove_all(folder + "port");
  std::filesystem::create_directories(folder + name + "/device");
  EXPECT_EQ(speed(), 25000);
  std::ofstream(folder + name + "/speed") << "-1\n";
  EXPECT_EQ(speed(), -1);
}

TEST(Network, SaysWhatIsWrongWithAnAddress) {
  EXPECT_THAT(ReadNetworkFacts("nowhere.invalid:1", "").addresses, Not(IsOk()));
  EXPECT_THAT(ReadNetworkFacts("no port", "").addresses,
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(Network, KnowsLoopback) {
  EXPECT_TRUE(IsLoopback("127.0.0.1"));
  EXPECT_TRUE(IsLoopback("127.1.2.3"));
  EXPECT_TRUE(IsLoopback("::1"));
  EXPECT_FALSE(IsLoopback("10.0.0.1"));
  EXPECT_FALSE(IsLoopback("1270::1"));
}

}  // namespace
}  // namespace lockstep
