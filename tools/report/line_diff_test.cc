#include "lockstep/tools/report/line_diff.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::internal_report {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Diff(absl::string_view first,
                              absl::string_view second) {
  std::vector<std::string> lines;
  for (const LineChange& change : DifferentLines(first, second)) {
    lines.push_back(absl::StrCat(change.is_of_second ? "+" : "-", change.line));
  }
  return lines;
}

TEST(DifferentLines, AreThoseOfOneTextAlone) {
  EXPECT_THAT(Diff("a\nb\nc", "a\nb\nc"), IsEmpty());
  EXPECT_THAT(Diff("a\nb\nc", "a\nx\nc"), ElementsAre("-b", "+x"));
  EXPECT_THAT(Diff("a\nb\nc\nd", "b\nc\nd\ne"), ElementsAre("-a", "+e"));
  EXPECT_THAT(Diff("a", ""), ElementsAre("-a", "+"));
  EXPECT_THAT(Diff("a\na", "a"), ElementsAre("-a"));
  // The longest sequence that both have is "b c".
  EXPECT_THAT(Diff("x\nb\nc\ny", "c\nb\nc"), ElementsAre("-x", "+c", "-y"));
}

TEST(DifferentLines, OfVeryLongTextsAreThoseThatTheOtherLacks) {
  std::string first = "begin\n";
  std::string second = "other\n";
  for (int i = 0; i < 5000; ++i) {
    absl::StrAppend(&first, "line ", i, "\n");
    absl::StrAppend(&second, "line ", 4999 - i, "\n");
  }
  first += "end";
  second += "finish";
  EXPECT_THAT(Diff(first, second),
              ElementsAre("-begin", "-end", "+other", "+finish"));
}

}  // namespace
}  // namespace lockstep::internal_report
