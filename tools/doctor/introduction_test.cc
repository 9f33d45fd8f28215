#include "lockstep/tools/doctor/introduction.h"

#include <set>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Introduction, SurvivesTheWayToRankZero) {
  Introduction introduction;
  introduction.host = "trainer-0";
  introduction.machine_id = "trainer-0/\"x\"";
  introduction.machine = "[1,2]";
  introduction.processors = "0-3,8";
  introduction.quota = 2.5;
  introduction.gpus = 8;
  introduction.mbits = 25000;
  introduction.seconds = 179.5;
  const std::string text = Encode(introduction);
  const auto read = DecodeIntroduction(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->host, "trainer-0");
  EXPECT_EQ(read->machine_id, "trainer-0/\"x\"");
  EXPECT_EQ(read->machine, "[1,2]");
  EXPECT_EQ(read->processors, "0-3,8");
  EXPECT_EQ(read->quota, 2.5);
  EXPECT_EQ(read->gpus, 8);
  EXPECT_EQ(read->mbits, 25000);
  EXPECT_EQ(read->seconds, 179.5);
  for (const std::string& wrong :
       {std::string(), text.substr(0, text.size() - 1), text + " "}) {
    EXPECT_THAT(DecodeIntroduction(wrong).status(),
                StatusIs(absl::StatusCode::kInternal));
  }
}

TEST(Processors, AreReadFromLists) {
  const auto of = [](const char* list) {
    std::set<int> processors;
    AddProcessors(list, processors);
    return processors;
  };
  EXPECT_THAT(of("0-2,8"), ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(of("5"), ElementsAre(5));
  EXPECT_THAT(of(""), IsEmpty());
  EXPECT_THAT(of("x,-,3"), ElementsAre(3));
}

}  // namespace
}  // namespace lockstep
