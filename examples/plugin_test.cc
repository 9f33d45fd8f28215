// These tests run the plugin example as a user would.
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
  EXPECT_THAT(ended.printed, AllOf(HasSubstr("step 0: "), HasSubstr("step 2: "),
                                   HasSubstr("step 0: 9 8 7 6 5\n"
                                             "step 1: 4 3 2 1 0\n")));
}

TEST(PluginExample, ListsAllParts) {
  const Ended ended = Execute("examples/plugin --list");
  EXPECT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(ended.printed,
              AllOf(HasSubstr("dataset ring\n"
                              "  Points on a ring.\n"
                              "  size = 100\n"
                              "      How many points there are.\n"),
                    HasSubstr("sampler distributed\n")));
}

TEST(FlagsExample, ReadsInTheOrderThatFlagsName) {
  const Ended ended = Execute("examples/flags --order=stratified --batch=40");
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.printed,
            "step 0: 40 samples\nstep 1: 40 samples\nstep 2: 20 samples\n");
  const Ended wrong = Execute("examples/flags --order=stratifid");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.printed, HasSubstr("did you mean 'stratified'?"));
}

}  // namespace
}  // namespace examples
