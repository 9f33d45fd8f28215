#include "lockstep/tools/words/words.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(WithCommas, SeparatesThousands) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(-123), "-123");
  EXPECT_EQ(WithCommas(-1234), "-1,234");
  EXPECT_EQ(WithCommas(1'234'567), "1,234,567");
  EXPECT_EQ(WithCommas(std::numeric_limits<int64_t>::min()),
            "-9,223,372,036,854,775,808");
}

TEST(Counted, HasTheWordForTheNumber) {
  EXPECT_EQ(Counted(0, "row", "rows"), "0 rows");
  EXPECT_EQ(Counted(1, "row", "rows"), "1 row");
  EXPECT_EQ(Counted(1000, "row", "rows"), "1,000 rows");
}

TEST(SayNumber, HasAboutThreeDigits) {
  EXPECT_EQ(SayNumber(0), "0");
  EXPECT_EQ(SayNumber(-0.0), "0");
  EXPECT_EQ(SayNumber(0.012345), "0.0123");
  EXPECT_EQ(SayNumber(999.7), "1,000");
  EXPECT_EQ(SayNumber(-1234.4), "-1,234");
  EXPECT_EQ(SayNumber(1e300), "1e+300");
  EXPECT_EQ(SayNumber(std::nan("")), "not known");
  EXPECT_EQ(SayNumber(-kInfinity), "not known");
}

TEST(SaySeconds, HasAUnit) {
  EXPECT_EQ(SaySeconds(0), "0 s");
  EXPECT_EQ(SaySeconds(5e-9), "5 ns");
  EXPECT_EQ(SaySeconds(12.34e-6), "12.3 us");
  EXPECT_EQ(SaySeconds(0.012), "12 ms");
  EXPECT_EQ(SaySeconds(0.9999), "1 s");
  EXPECT_EQ(SaySeconds(3.4), "3.4 s");
  EXPECT_EQ(SaySeconds(12345), "12,345 s");
  EXPECT_EQ(SaySeconds(1e300), "1e+300 s");
  EXPECT_EQ(SaySeconds(std::nan("")), "not known");
}

TEST(UnitOf, IsThatOfSaySeconds) {
  EXPECT_EQ(UnitOf(12e-6).name, "us");
  EXPECT_EQ(UnitOf(12e-6).seconds, 1e-6);
  EXPECT_EQ(UnitOf(-0.5).name, "ms");
  EXPECT_EQ(UnitOf(0).name, "s");
  EXPECT_EQ(UnitOf(kInfinity).name, "s");
}

TEST(SayShare, IsInPercent) {
  EXPECT_EQ(SayShare(0), "0 %");
  EXPECT_EQ(SayShare(1e-9), "<0.1 %");
  EXPECT_EQ(SayShare(0.034), "3.4 %");
  EXPECT_EQ(SayShare(0.12), "12 %");
  EXPECT_EQ(SayShare(1), "100 %");
  EXPECT_EQ(SayShare(1e300), "1e+302 %");
  EXPECT_EQ(SayShare(std::nan("")), "not known");
}

TEST(Printable, KeepsText) {
  EXPECT_EQ(Printable("", 10), "");
  EXPECT_EQ(Printable("plain, \u00e9, \u4e2d and \U0001f600\n\tx", 100),
            "plain, \u00e9, \u4e2d and \U0001f600\n\tx");
  // Lines may end as those of Windows do.
  EXPECT_EQ(Printable("a\r\nb\r\n", 100), "a\nb\n");
}

TEST(Printable, ReplacesWhatControlsATerminal) {
  for (const absl::string_view control : {"\r", "\x01", "\x08", "\x1b", "\x7f",
                                          "\xc2\x80", "\xc2\x9b", "\xc2\x9f"}) {
    EXPECT_EQ(Printable(absl::StrCat("a", control, "b"), 100),
              absl::StrCat("a", kReplacement, "b"));
  }
  EXPECT_EQ(Printable(absl::string_view("\0", 1), 100), kReplacement);
  EXPECT_EQ(Printable("\r\r\n", 100), absl::StrCat(kReplacement, "\n"));
  EXPECT_EQ(Printable("\u00a0", 100), "\u00a0");
}

TEST(Printable, ReplacesWhatTurnsTheDirectionOfText) {
  for (const absl::string_view control :
       {"\u061c", "\u200e", "\u200f", "\u202a", "\u202e", "\u2066", "\u2069"}) {
    EXPECT_EQ(Printable(absl::StrCat("a", control, "b"), 100),
              absl::StrCat("a", kReplacement, "b"));
  }
  // Their neighbours stay.
  for (const absl::string_view text :
       {"\u061b", "\u061d", "\u200d", "\u2010", "\u2029", "\u202f", "\u2065",
        "\u206a"}) {
    EXPECT_EQ(Printable(text, 100), text);
  }
}

TEST(Printable, ReplacesEachByteOfNoCharacter) {
  EXPECT_EQ(Printable("a\xff\xfe", 100),
            absl::StrCat("a", kReplacement, kReplacement));
  EXPECT_EQ(Printable("\xc3", 100), kReplacement);
  EXPECT_EQ(Printable("\xe4\xb8x", 100),
            absl::StrCat(kReplacement, kReplacement, "x"));
  // U+FFFE is no character.
  EXPECT_EQ(Printable("\xef\xbf\xbe", 100), kReplacement);
}

TEST(Printable, IsCutBetweenCharacters) {
  EXPECT_EQ(Printable("abcdef", 6), "abcdef");
  EXPECT_EQ(Printable("abcdef", 4), "abcd\u2026");
  EXPECT_EQ(Printable("abc\u00e9", 4), "abc\u2026");
  EXPECT_EQ(Printable("abc\u00e9", 5), "abc\u00e9");
  EXPECT_EQ(Printable("a", 0), "\u2026");
}

}  // namespace
}  // namespace lockstep
