// These tests check that each failure is reported, and that the job ends well
// after it.
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/execute.h"

namespace examples {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

Ended Recover(const std::string& flags) {
  std::string folder = testing::TempDir() + "/recoveryXXXXXX";
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  return Launch(
      2,
      absl::StrCat("examples/recovery --checkpoint=", folder, "/steps", flags),
      "--max_restarts=1");
}

// Expects that both ranks ended successfully with the same weight.
void ExpectEndedWell(const Ended& ended) {
  EXPECT_EQ(ended.code, 0) << ended.printed;
  const std::vector<std::string> parts =
      absl::StrSplit(ended.printed, "after step 20 the weight is 0.50\n");
  EXPECT_EQ(parts.size(), 3) << ended.printed;
}

void ExpectGroupMadeAgain(const Ended& ended) {
  ExpectEndedWell(ended);
  EXPECT_THAT(ended.printed,
              AllOf(HasSubstr("[rank 0] goes on after step 5\n"),
                    HasSubstr("[rank 1] goes on after step 5\n"),
                    HasSubstr("  #11 all_reduce(1 x f64, avg): OK after"),
                    Not(HasSubstr("restart 1 of 1"))));
}

TEST(Recovery, LateIsNoFailure) {
  const Ended ended = Recover(" --fail=late");
  ExpectEndedWell(ended);
  EXPECT_THAT(ended.printed,
              AllOf(HasSubstr("[rank 1] slow: "), Not(HasSubstr("failed: ")),
                    Not(HasSubstr("goes on"))));
}

TEST(Recovery, Mismatch) {
  const Ended ended = Recover(" --fail=mismatch");
  ExpectGroupMadeAgain(ended);
  EXPECT_THAT(ended.printed, AllOf(HasSubstr("differ at operation #15: "),
                                   HasSubstr("issued all_reduce(1 x f64, avg)"),
                                   HasSubstr("issued barrier()")));
}

TEST(Recovery, NoNumber) {
  const Ended ended = Recover(" --fail=nan");
  ExpectGroupMadeAgain(ended);
  EXPECT_THAT(ended.printed, HasSubstr("in step 7 the gradient is nan"));
}

// Returns true if the group failed once on both ranks, and in step 7.
bool FailedInTheStepAlone(const std::string& printed) {
  const std::vector<std::string> parts = absl::StrSplit(printed, "failed: ");
  return parts.size() == 3 &&
         absl::StrContains(printed, "  #11 all_reduce(1 x f64, avg): OK after");
}

TEST(Recovery, Stuck) {
  // If the machine itself stalls for the watchdog's patience, the watchdog ends
  // the group too early or once more. So the test repeats the case with more
  // patience.
  Ended ended;
  std::string patience;
  for (const char* const each : {"2s", "10s", "50s"}) {
    patience = each;
    ended = Recover(absl::StrCat(" --fail=stuck --patience=", patience));
    if (FailedInTheStepAlone(ended.printed)) break;
  }
  ExpectGroupMadeAgain(ended);
  EXPECT_THAT(ended.printed,
              ContainsRegex(absl::StrCat(
                  "failed: rank [01] aborted [^\n]*no step for ", patience)));
}

TEST(Recovery, KilledAndStartedAgain) {
  const Ended ended = Recover(" --fail=kill");
  ExpectEndedWell(ended);
  EXPECT_THAT(ended.printed,
              AllOf(ContainsRegex("failed: rank 1 \\([^\n]*is lost"),
                    HasSubstr("restart 1 of 1\n"),
                    HasSubstr("[rank 0] goes on after step 5\n"),
                    HasSubstr("[rank 1] goes on after step 5\n")));
}

TEST(Recovery, NeedsAFile) {
  const Ended ended = Execute("examples/recovery");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed, HasSubstr("give --checkpoint=PATH"));
}

}  // namespace
}  // namespace examples
