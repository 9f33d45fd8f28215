#include "lockstep/tools/report/launch_report.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
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

using ::testing::ElementsAre;
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
  EXPECT_THAT(end->ends, ElementsAre("rank 0 exited", "rank 1 killed"));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(end, FindRunEnd({path}, {{1, 22}}));
  ASSERT_TRUE(end.has_value());
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

TEST_F(LaunchReportTest, ARunThatWasStoppedHasNotFailed) {
  const std::map<int64_t, int64_t> pids = {{0, 11}};
  const auto attempt = [](int64_t exit_code, int64_t of_rank, bool is_sent) {
    return absl::StrCat(
        R"({"version":1,"attempt":0,"node_rank":0,"exit_code":)", exit_code,
        R"(,"blame":null,"message":"","reported_by":-1,"ranks":[{"rank":0,)",
        R"("pid":11,"exit_code":)", of_rank,
        R"(,"end":"exited","sent_by_launcher":)", is_sent ? "true" : "false",
        "}]}\n");
  };
  const std::pair<std::string, bool> ends[] = {{attempt(143, 0, false), false},
                                               {attempt(0, 0, false), false},
                                               {attempt(143, 143, true), false},
                                               {attempt(1, 1, false), true}};
  for (const auto& [text, has_failed] : ends) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::optional<RunEnd> end,
                                  FindRunEnd({Write("end", text)}, pids));
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->has_failed, has_failed) << text;
  }
}

TEST_F(LaunchReportTest, TheLastAttemptCounts) {
  // In containers, the processes of all attempts may have the same numbers.
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const std::optional<RunEnd> end,
      FindRunEnd({Write("launch", Attempt(0, 1, LostRank(), 11) +
                                      Attempt(1, 1, "null", 11))},
                 {{0, 11}}));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->attempt, 1);
}

TEST_F(LaunchReportTest, AnIncompleteLineDoesNotCount) {
  const std::string whole = Attempt(0, 1, LostRank(), 11);
  for (const std::string& text :
       {absl::StrCat(whole, "\n"), absl::StrCat(whole, whole.substr(0, 50))}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::optional<RunEnd> end,
                                  FindRunEnd({Write("torn", text)}, {{0, 11}}));
    EXPECT_TRUE(end.has_value()) << text;
  }
}

TEST_F(LaunchReportTest, OtherFilesAreRefused) {
  EXPECT_THAT(FindRunEnd({folder_ + "/none"}, {}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("none is no file; give the file of lockstep "
                                 "launch --report")));
  EXPECT_THAT(FindRunEnd({folder_}, {}), StatusIs(absl::StatusCode::kNotFound));
  for (const char* const text :
       {"{}\n", "[1}\n", "{\"version\":1}\n", "{\"version\":1,\"attempt\":0}\n",
        "{\"version\":2,\"attempt\":0,\"exit_code\":0}\n"}) {
    EXPECT_THAT(FindRunEnd({Write("bad", text)}, {}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("bad, line 1: ")))
        << text;
  }
}

}  // namespace
}  // namespace lockstep
