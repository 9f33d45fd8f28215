#include "lockstep/tools/doctor/finding.h"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

MachineReport Report() {
  MachineReport report;
  report.host = "trainer-0";
  report.about = "Linux \"6.1\", a processor";
  report.facts = {{"processors", int64_t{8}},
                  {"quota", 2.5},
                  {"gpu", std::string("an \"H100\"")}};
  report.findings = {{"port", Verdict::kFailure, "it is\ntaken", "free it"},
                     {"clock", Verdict::kNotJudged, "tsc", ""},
                     {"memory", Verdict::kWarning, "little", "add some"},
                     {"token", Verdict::kPass, "one", ""}};
  return report;
}

TEST(Finding, SurvivesTheWayToAnotherRank) {
  const std::optional<MachineReport> read =
      DecodeMachineReport(Encode(Report()));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->host, "trainer-0");
  EXPECT_EQ(read->about, "Linux \"6.1\", a processor");
  ASSERT_THAT(read->facts, SizeIs(3));
  EXPECT_EQ(read->facts[0].name, "processors");
  EXPECT_EQ(std::get<int64_t>(read->facts[0].value), 8);
  EXPECT_EQ(std::get<double>(read->facts[1].value), 2.5);
  EXPECT_EQ(std::get<std::string>(read->facts[2].value), "an \"H100\"");
  ASSERT_THAT(read->findings, SizeIs(4));
  EXPECT_EQ(read->findings[0].check, "port");
  EXPECT_EQ(read->findings[0].text, "it is\ntaken");
  EXPECT_EQ(read->findings[0].remedy, "free it");
  EXPECT_EQ(read->findings[0].verdict, Verdict::kFailure);
  EXPECT_EQ(read->findings[1].verdict, Verdict::kNotJudged);
  EXPECT_EQ(read->findings[2].verdict, Verdict::kWarning);
  EXPECT_EQ(read->findings[3].verdict, Verdict::kPass);
}

TEST(Finding, IsReadWholeOrNotAtAll) {
  const std::string text = Encode(Report());
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(DecodeMachineReport(text.substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(DecodeMachineReport(text + " ").has_value());
  for (const char* wrong : {"", "[", "[\"a\",\"b\",[\"c\",3,1,],[]]",
                            "[\"a\",\"b\",[],[\"c\",4,\"d\",\"e\",]]",
                            "[\"a\",\"b\",[],[\"c\",-1,\"d\",\"e\",]]"}) {
    EXPECT_FALSE(DecodeMachineReport(wrong).has_value()) << wrong;
  }
}

TEST(Finding, IsCountedByVerdict) {
  const auto findings = Report().findings;
  EXPECT_EQ(CountOf(findings, Verdict::kFailure), 1);
  EXPECT_EQ(CountOf({}, Verdict::kFailure), 0);
  EXPECT_THAT((std::vector<absl::string_view>{
                  Name(Verdict::kPass), Name(Verdict::kNotJudged),
                  Name(Verdict::kWarning), Name(Verdict::kFailure)}),
              ElementsAre("PASS", "-", "WARN", "FAIL"));
}

}  // namespace
}  // namespace lockstep
