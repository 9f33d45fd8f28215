#include "lockstep/base/json.h"

#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace lockstep::internal_base {
namespace {

std::string JsonOf(absl::string_view text) {
  std::string json;
  AppendJson(text, json);
  return json;
}

TEST(Json, EscapesWhatMustNotStandInATextInQuotes) {
  EXPECT_EQ(JsonOf("a \"b\" \\ c"), R"("a \"b\" \\ c")");
  EXPECT_EQ(JsonOf("\b\f\n\r\t"), R"("\b\f\n\r\t")");
  EXPECT_EQ(JsonOf(absl::string_view("\0\x1b", 2)), R"("\u0000\u001b")");
  EXPECT_EQ(JsonOf("\xc3\xa4"), "\"\xc3\xa4\"");
  EXPECT_EQ(JsonOf("a\xffz"), "\"a\xef\xbf\xbdz\"");
}

TEST(Json, IsReadBack) {
  std::string all;
  for (int c = 0; c < 0x80; ++c) all += static_cast<char>(c);
  const int64_t least = std::numeric_limits<int64_t>::min();
  const std::string json =
      absl::StrCat("{\"text\":", JsonOf(all), ",\"number\":", least,
                   ",\"real\":-1.5,\"yes\":true,\"no\":false}");
  JsonReader in(json);
  std::string text;
  int64_t number = 0;
  double real = 0;
  bool yes = false, no = true;
  ASSERT_TRUE(in.Skip("{\"text\":") && in.Read(text) &&
              in.Skip(",\"number\":") && in.Read(number) &&
              in.Skip(",\"real\":") && in.Read(real) && in.Skip(",\"yes\":") &&
              in.Read(yes) && in.Skip(",\"no\":") && in.Read(no) &&
              in.Skip("}"));
  EXPECT_TRUE(in.at_end());
  EXPECT_EQ(text, all);
  EXPECT_EQ(number, least);
  EXPECT_EQ(real, -1.5);
  EXPECT_TRUE(yes);
  EXPECT_FALSE(no);
}

TEST(Json, RefusesWhatNobodyHasWritten) {
  for (const absl::string_view bad :
       {"", "x", "\"", "\"a", "\"a\\", "\"\\\"", "\"\\x\"", "\"\\u\"",
        "\"\\u00\"", "\"\\u0041\"", "\"\\u00zz\"", "\"\\u001\""}) {
    std::string text;
    EXPECT_FALSE(JsonReader(bad).Read(text)) << bad;
  }
  for (const absl::string_view bad :
       {"", "x", "1x", "99999999999999999999", "\"1\""}) {
    int64_t number = 0;
    EXPECT_FALSE(JsonReader(bad).Read(number)) << bad;
  }
  for (const absl::string_view bad : {"", "x", "nan", "inf", "1e999"}) {
    double real = 0;
    EXPECT_FALSE(JsonReader(bad).Read(real)) << bad;
  }
  bool value = false;
  EXPECT_FALSE(JsonReader("True").Read(value));
  EXPECT_FALSE(JsonReader("{").Skip("["));
}

}  // namespace
}  // namespace lockstep::internal_base
