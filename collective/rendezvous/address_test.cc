#include "lockstep/collective/rendezvous/address.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/base/steady_time.h"

namespace lockstep::internal_collective {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HostPortTest, IsRead) {
  const struct {
    const char* text;
    const char* host;
    int port;
  } cases[] = {{"trainer-0:29500", "trainer-0", 29500},
               {"10.0.0.7:1", "10.0.0.7", 1},
               {"[fd00::7]:65535", "fd00::7", 65535},
               {"[fe80::1%eth0]:80", "fe80::1%eth0", 80}};
  for (const auto& c : cases) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const HostPort parsed, ParseHostPort(c.text));
    EXPECT_EQ(parsed.host, c.host);
    EXPECT_EQ(parsed.port, c.port);
    EXPECT_EQ(FormatHostPort(parsed.host, parsed.port), c.text);
  }
}

TEST(HostPortTest, FaultsAreNamed) {
  const struct {
    std::string text;
    const char* fault;
  } cases[] = {{"", "no port"},
               {"trainer-0", "no port"},
               {":29500", "no host"},
               {"[]:29500", "brackets"},
               {"fd00::7:29500", "brackets"},
               {"[fd00::7:29500", "brackets"},
               {"[trainer-0]:29500", "brackets"},
               {"trainer-0:", "port"},
               {"trainer-0:0", "between 1 and 65535"},
               {"trainer-0:65536", "between 1 and 65535"},
               {"trainer-0:-1", "between 1 and 65535"},
               {"trainer-0:http", "between 1 and 65535"},
               {std::string("a\0b:1", 5), "NUL"}};
  for (const auto& c : cases) {
    EXPECT_THAT(ParseHostPort(c.text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("host:port"), HasSubstr(c.fault))))
        << c.text;
  }
}

TEST(ResolveTest, TakesNumbersAsTheyAre) {
  EXPECT_THAT(Resolve("127.0.0.1", SteadyNow()),
              IsOkAndHolds(ElementsAre("127.0.0.1")));
  EXPECT_THAT(Resolve("::1", SteadyNow()), IsOkAndHolds(ElementsAre("::1")));
}

TEST(ResolveTest, FindsNames) {
  EXPECT_THAT(Resolve("localhost", After(absl::Minutes(1))),
              IsOkAndHolds(AnyOf(Contains("127.0.0.1"), Contains("::1"))));
}

// RFC 2606: a name in ".invalid" never exists.
TEST(ResolveTest, WhatDoesNotResolveIsNamed) {
  const auto found = Resolve("lockstep-test.invalid", After(absl::Seconds(5)));
  EXPECT_THAT(found.status().message(), HasSubstr("'lockstep-test.invalid'"));
  EXPECT_FALSE(found.ok());
}

TEST(ResolveTest, KeepsItsDeadline) {
  const auto found = Resolve("lockstep-test.invalid", SteadyNow());
  EXPECT_THAT(found.status().message(), HasSubstr("'lockstep-test.invalid'"));
}

}  // namespace
}  // namespace lockstep::internal_collective
