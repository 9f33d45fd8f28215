#include "lockstep/tools/report/page_text.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace lockstep::internal_report {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

TEST(Escaped, KeepsTextFromBeingHtml) {
  EXPECT_EQ(Escaped("a<b>&\"c\"'d'"),
            "a&lt;b&gt;&amp;&quot;c&quot;&#39;d&#39;");
  EXPECT_EQ(Escaped("plain, \u00e9 and \u4e2d\n\tx"),
            "plain, \u00e9 and \u4e2d\n\tx");
}

TEST(Escaped, ReplacesWhatIsNoText) {
  // Lines may end as those of Windows do.
  EXPECT_EQ(Escaped("a\r\nb"), "a\nb");
  for (const char* wrong :
       {"\r", "\x01", "\x1b", "\x7f", "\xff", "\xc3", "\xc2\x9f",
        "\xe2\x80\xae", "\xe2\x81\xa6", "\xef\xbf\xbe"}) {
    EXPECT_EQ(Escaped(std::string("a") + wrong + "b"),
              std::string("a") + kReplacement + "b");
  }
  EXPECT_EQ(Escaped(absl::string_view("\0", 1)), kReplacement);
}

TEST(Escaped, IsCutBetweenCharacters) {
  EXPECT_EQ(Escaped("abcdef", 6), "abcdef");
  EXPECT_EQ(Escaped("abcdef", 4), "abcd\u2026");
  EXPECT_EQ(Escaped("abc\u00e9", 4), "abc\u2026");
}

TEST(SayCount, HasCommas) {
  EXPECT_EQ(SayCount(0), "0");
  EXPECT_EQ(SayCount(-1234), "-1,234");
  EXPECT_EQ(SayCount(1'234'567), "1,234,567");
  EXPECT_EQ(SayCount(std::numeric_limits<int64_t>::min()),
            "-9,223,372,036,854,775,808");
  EXPECT_EQ(SayCounted(1, "row", "rows"), "1 row");
  EXPECT_EQ(SayCounted(1000, "row", "rows"), "1,000 rows");
}

TEST(SayNumber, HasAboutThreeDigits) {
  EXPECT_EQ(SayNumber(0), "0");
  EXPECT_EQ(SayNumber(-0.0), "0");
  EXPECT_EQ(SayNumber(0.012345), "0.0123");
  EXPECT_EQ(SayNumber(999.7), "1,000");
  EXPECT_EQ(SayNumber(-1234.4), "-1,234");
  EXPECT_EQ(SayNumber(1e300), "1e+300");
  EXPECT_EQ(SayNumber(std::nan("")), "not known");
  EXPECT_EQ(SayNumber(-std::numeric_limits<double>::infinity()), "not known");
}

TEST(SaySeconds, HasAUnit) {
  EXPECT_EQ(SaySeconds(0), "0 s");
  EXPECT_EQ(SaySeconds(5e-9), "5 ns");
  EXPECT_EQ(SaySeconds(12.34e-6), "12.3 \u00b5s");
  EXPECT_EQ(SaySeconds(0.012), "12 ms");
  EXPECT_EQ(SaySeconds(0.9999), "1 s");
  EXPECT_EQ(SaySeconds(3.4), "3.4 s");
  EXPECT_EQ(SaySeconds(12345), "12,345 s");
  EXPECT_EQ(SaySeconds(1e300), "1e+300 s");
  EXPECT_EQ(SaySeconds(std::nan("")), "not known");
}

TEST(SayShare, IsInPercent) {
  EXPECT_EQ(SayShare(0), "0 %");
  EXPECT_EQ(SayShare(1e-9), "<0.1 %");
  EXPECT_EQ(SayShare(0.034), "3.4 %");
  EXPECT_EQ(SayShare(0.12), "12 %");
  EXPECT_EQ(SayShare(1), "100 %");
  EXPECT_EQ(SayShare(1e300), "1e+302 %");
  EXPECT_EQ(SayShare(std::nan("")), "not known");
  EXPECT_EQ(SayShare(ShareOf(1, 0)), "not known");
  EXPECT_EQ(SayShare(ShareOf(1, 4)), "25 %");
}

TEST(Amount, IsFiniteAndNotNegative) {
  EXPECT_EQ(Amount(2), 2);
  EXPECT_EQ(Amount(-2), 0);
  EXPECT_EQ(Amount(std::nan("")), 0);
  EXPECT_TRUE(
      std::isfinite(1000 * Amount(std::numeric_limits<double>::infinity())));
}

}  // namespace
}  // namespace lockstep::internal_report
