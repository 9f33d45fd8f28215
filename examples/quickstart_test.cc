// That the quickstart shows what it says it shows.
#include <cstddef>
#include <string>
#include <vector>

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

constexpr char kQuickstart[] =
    "examples/quickstart --samples=20 --batch=4 --epochs=3";
constexpr size_t kEpochs = 3;

Ended RunProcesses(const std::string& flags) {
  return Launch(2, absl::StrCat(kQuickstart, " ", flags));
}

void ExpectEachCameOnce(const Ended& ended) {
  EXPECT_EQ(ended.code, 0) << ended.printed;
  const std::vector<std::string> parts =
      absl::StrSplit(ended.printed, "  each of 20 samples came exactly once\n");
  EXPECT_EQ(parts.size(), 1 + kEpochs) << ended.printed;
  EXPECT_THAT(ended.printed,
              AllOf(HasSubstr("  rank 0 got "), HasSubstr("  rank 1 got ")));
}

TEST(Quickstart, Local) {
  ExpectEachCameOnce(
      Execute(absl::StrCat(kQuickstart, " --backend=local --ranks=2")));
}

class QuickstartProcesses : public testing::TestWithParam<const char*> {};

TEST_P(QuickstartProcesses, EachSampleComesOnce) {
  ExpectEachCameOnce(RunProcesses(absl::StrCat("--backend=", GetParam())));
}

TEST_P(QuickstartProcesses, TheSurvivorNamesTheDead) {
  const Ended ended =
      RunProcesses(absl::StrCat("--kill=1 --backend=", GetParam()));
  EXPECT_EQ(ended.code, 128 + 9);
  EXPECT_THAT(ended.printed,
              ContainsRegex("\\[rank 0\\] UNAVAILABLE: [^\n]*rank 1 \\("));
}

INSTANTIATE_TEST_SUITE_P(All, QuickstartProcesses,
                         testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

TEST(Quickstart, SaysWhatItCanNotKill) {
  const Ended beyond = RunProcesses("--backend=shm --kill=2");
  EXPECT_EQ(beyond.code, 1);
  EXPECT_THAT(beyond.printed,
              HasSubstr("--kill should be a rank, 0 to 1, or -1 for none, but "
                        "got --kill=2"));
  const Ended thread =
      Execute(absl::StrCat(kQuickstart, " --backend=local --kill=1"));
  EXPECT_EQ(thread.code, 1);
  EXPECT_THAT(thread.printed, HasSubstr("threads of one"));
}

}  // namespace
}  // namespace examples
