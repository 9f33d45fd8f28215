#include "lockstep/collective/rendezvous/launcher_syntax.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::internal_collective {
namespace {

using ::testing::Eq;
using ::testing::Optional;

TEST(ParseNumber, TakesDigitsAlone) {
  EXPECT_THAT(ParseNumber("0", 0, 9), Optional(0));
  EXPECT_THAT(ParseNumber("007", 0, 9), Optional(7));
  EXPECT_THAT(ParseNumber("9", 0, 9), Optional(9));
  for (const char* const text : {"", " ", "10", "+1", "-1", " 1", "1 ", "0x1",
                                 "1.0", "1e0", "two", "99999999999999999999"}) {
    EXPECT_EQ(ParseNumber(text, 0, 9), std::nullopt) << text;
  }
  EXPECT_EQ(ParseNumber("1", 2, 9), std::nullopt);
}

TEST(IsHostName, KnowsNamesAndAddresses) {
  for (const char* const text : {"a", "trainer-0.train.svc", "10.0.0.7", "::1",
                                 "fe80::1%eth0", "node_1"}) {
    EXPECT_TRUE(IsHostName(text)) << text;
  }
  for (const char* const text :
       {"", "a b", "a,b", "[::1]", "a/b", "a\n", "ä"}) {
    EXPECT_FALSE(IsHostName(text)) << text;
  }
}

TEST(FirstHostOf, ReadsLists) {
  const struct {
    const char* list;
    const char* first;
  } cases[] = {
      {"gpu1", "gpu1"},
      {"gpu1,gpu2", "gpu1"},
      {"node[003-005,007],gpu1", "node003"},
      {"node[7]", "node7"},
      {"node[7,9-12]", "node7"},
      {"gpu1,node[003-005]", "gpu1"},
      {"rack[1-2]node[01-04]", "rack1node01"},
      {"node[1-3]-ib", "node1-ib"},
      {"tux[000x333]", "tux000x333"},
      {"n-[08-11].x", "n-08.x"},
  };
  for (const auto& [list, first] : cases) {
    EXPECT_THAT(FirstHostOf(list), Optional(Eq(first))) << list;
  }
  for (const char* const list :
       {"", ",", ",gpu1", "node[", "node[1-2", "node[]", "node[-2]", "node[,2]",
        "node]", "node[[1-2]]", "two hosts", "node[00:3-4]", "gpu1:29500"}) {
    EXPECT_EQ(FirstHostOf(list), std::nullopt) << list;
  }
}

TEST(ParseTasksPerNode, CountsAndFinds) {
  const std::string text = "4(x2),3,1(x3)";
  const int on[] = {4, 4, 3, 1, 1, 1};
  for (int node = 0; node < 6; ++node) {
    const auto parsed = ParseTasksPerNode(text, node);
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(parsed->on_node, on[node]) << node;
    EXPECT_EQ(parsed->all, 14);
    EXPECT_EQ(parsed->most, 4);
  }
  EXPECT_EQ(ParseTasksPerNode(text, 6)->on_node, -1);
  EXPECT_EQ(ParseTasksPerNode(text, -1)->on_node, -1);
  EXPECT_EQ(ParseTasksPerNode("1(x1000000)", 999999)->all, 1000000);
  for (const char* const malformed :
       {"", ",", "4,", "x2", "4(x)", "4(x2", "4(x2)3", "4(2)", "4x2", "(x2)",
        "4(x0)", "0", "-4", "4 (x2)", "two", "1000000(x1000000)", "4(x1000000)",
        "9999999999"}) {
    EXPECT_EQ(ParseTasksPerNode(malformed, 0), std::nullopt) << malformed;
  }
}

}  // namespace
}  // namespace lockstep::internal_collective
