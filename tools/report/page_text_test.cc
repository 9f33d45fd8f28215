#include "lockstep/tools/report/page_text.h"

#include <cmath>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace lockstep::internal_report {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Escaped, KeepsTextFromBeingHtml) {
  EXPECT_EQ(Escaped("a<b>&\"c\"'d'"),
            "a&lt;b&gt;&amp;&quot;c&quot;&#39;d&#39;");
  EXPECT_EQ(Escaped("&lt;"), "&amp;lt;");
  EXPECT_EQ(Escaped("plain, \u00e9 and \u4e2d\n\tx"),
            "plain, \u00e9 and \u4e2d\n\tx");
}

TEST(Escaped, ReplacesWhatIsNoText) {
  for (const char* wrong : {"\x1b", "\xff", "\u202e"}) {
    EXPECT_EQ(Escaped(std::string("<") + wrong + ">"), "&lt;\ufffd&gt;");
  }
}

// The limit is that of the text, which HTML makes longer.
TEST(Escaped, IsCutBetweenCharacters) {
  EXPECT_EQ(Escaped("abcdef", 6), "abcdef");
  EXPECT_EQ(Escaped("<<<<<<", 4), "&lt;&lt;&lt;&lt;\u2026");
  EXPECT_EQ(Escaped("abc\u00e9", 4), "abc\u2026");
}

TEST(Amount, IsFiniteAndNotNegative) {
  EXPECT_EQ(Amount(2), 2);
  EXPECT_EQ(Amount(-2), 0);
  EXPECT_EQ(Amount(std::nan("")), 0);
  EXPECT_TRUE(std::isfinite(1000 * Amount(kInfinity)));
}

TEST(ShareOf, IsUnknownWithoutAWhole) {
  EXPECT_EQ(ShareOf(1, 4), 0.25);
  EXPECT_TRUE(std::isnan(ShareOf(1, 0)));
  EXPECT_TRUE(std::isnan(ShareOf(1, kInfinity)));
}

}  // namespace
}  // namespace lockstep::internal_report
