// These tests run the plugin example as a user does.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/execute.h"

namespace examples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(PluginExample, ReadsItsOwnDataset) {
  const Ended ended = Execute("examples/plugin");
  EXPECT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(ended.printed,
              AllOf(HasSubstr("step 0: "), HasSubstr("step 2: ")));
}

TEST(PluginExample, ListsAllParts) {
  const Ended ended = Execute("examples/plugin --list");
  EXPECT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(ended.printed,
              AllOf(HasSubstr("dataset ring: Points on a ring.\n"
                              "  size = 100: How many points there are.\n"),
                    HasSubstr("sampler distributed: ")));
}

}  // namespace
}  // namespace examples
