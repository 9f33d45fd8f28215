#include "lockstep/tools/report/launch_report.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/blame.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class LaunchReportTest : public testing::Test {
 protected:
  LaunchReportTest() {
    std::string folder = testing::TempDir() + "/launchXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }

  // Writes a file, and returns its path.
  std::string Write(absl::string_view name, absl::string_view text) const {
    std::string path = absl::StrCat(folder_, "/", name);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  static std::string Attempt(int64_t number, int64_t exit_code,
                             absl::string_view blame, int64_t pid) {
    return absl::StrCat(
        "{\"version\":1,\"attempt\":", number, ",\"node_rank\":0,",
        "\"exit_code\":", exit_code, ",\"blame\":", blame,
        R"(,"message":"say \",\"message\":\" twice","reported_by":0,"ranks":[)",
        R"({"rank":0,"pid":)", pid,
        R"(,"exit_code":1,"end":"exited","sent_by_launcher":false},)",
        R"({"rank":1,"pid":)", pid + 1,
        R"(,"exit_code":137,"end":"killed","sent_by_launcher":false}]})", "\n");
  }

  std::string folder_;
};

std::string LostRank() {
  Blame blame;
  blame.cause = Blame::Cause::kLost;
  blame.code = absl::StatusCode::kUnavailable;
  Blame::Rank rank;
  rank.rank = 1;
  rank.host = "trainer-1";
  rank.pid = 12;
  blame.ranks = {rank};
  return ToJson(blame);
}

TEST_F(LaunchReportTest, TheAttemptOfTheRunTellsItsEnd) {
  const std::string path = Write(
      "launch", Attempt(0, 1, LostRank(), 11) + Attempt(1, 0, "null", 21));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(std::optional<RunEnd> end,
                                FindRunEnd({path}, {{0, 11}, {1, 12}}));
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(end->has_failed);
  EXPECT_EQ(end->attempt, 0);
  EXPECT_EQ(end->exit_code, 1);
  EXPECT_THAT(end->blame, HasSubstr("lost: rank 1 (trainer-1, pid 12)"));
  EXPECT_EQ(end->message, "say \",\"message\":\" twice");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(end, FindRunEnd({path}, {{1, 22}}));
  ASSERT_TRUE(end.has_value());
  EXPECT_FALSE(end->has_failed);
  EXPECT_EQ(end->attempt, 1);
  EXPECT_EQ(end->blame, "");
}

TEST_F(LaunchReportTest, OtherProcessesTellNothing) {
  const std::string path = Write("launch", Attempt(0, 1, LostRank(), 11));
  const std::map<int64_t, int64_t> others[] = {
      {{0, 11}, {1, 13}}, {{0, 5}}, {{2, 11}}, {}};
  for (const std::map<int64_t, int64_t>& pids : others) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::optional<RunEnd> end,
                                  FindRunEnd({path}, pids));
    EXPECT_FALSE(end.has_value());
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::optional<RunEnd> end,
                                FindRunEnd({}, {{0, 11}}));
  EXPECT_FALSE(end.has_value());
}

TEST_F(LaunchReportTest, TheHostThatKnowsMostTells) {
  const std::string knows = Write("a", Attempt(0, 1, LostRank(), 11));
  const std::string stopped = Write("b", Attempt(0, 1, "null", 11));
  const std::string fine = Write("c", Attempt(0, 0, "null", 11));
  const std::map<int64_t, int64_t> pids = {{0, 11}};
  for (const auto& paths : {std::vector<std::string>{knows, stopped, fine},
                            std::vector<std::string>{fine, stopped, knows}}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::optional<RunEnd> end,
                                  FindRunEnd(paths, pids));
    ASSERT_TRUE(end.has_value());
    EXPECT_TRUE(end->has_failed);
    EXPECT_NE(end->blame, "");
  }
}

TEST_F(LaunchReportTest, OtherFilesAreRefused) {
  EXPECT_THAT(FindRunEnd({folder_ + "/none"}, {}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("should be a file of lockstep launch")));
  EXPECT_THAT(FindRunEnd({folder_}, {}), StatusIs(absl::StatusCode::kNotFound));
  for (const char* const text : {"{}\n", "x\n", "[1]\n", "{\"version\":1}\n"}) {
    EXPECT_THAT(FindRunEnd({Write("bad", text)}, {}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("bad, line 1: ")))
        << text;
  }
}

}  // namespace
}  // namespace lockstep
