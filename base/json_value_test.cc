#include "lockstep/base/json_value.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/json.h"
#include "lockstep/base/mangled.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/base/utf8.h"

namespace lockstep::internal_base {
namespace {

using Type = JsonValue::Type;
using ::testing::HasSubstr;
using ::testing::StartsWith;

JsonValue Parse(absl::string_view json) {
  absl::StatusOr<JsonValue> value = ParseJson(json);
  EXPECT_THAT(value, IsOk()) << json;
  return value.ok() ? *std::move(value) : JsonValue();
}

std::string TextOf(absl::string_view json) {
  const JsonValue value = Parse(json);
  EXPECT_NE(value.text(), nullptr) << json;
  return value.text() == nullptr ? "" : *value.text();
}

std::string Repeated(int times, absl::string_view text) {
  std::string all;
  for (int i = 0; i < times; ++i) absl::StrAppend(&all, text);
  return all;
}

uint64_t BitsOf(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Expects that two doubles have the same bits.
void ExpectSame(double value, double expected, absl::string_view json) {
  EXPECT_EQ(BitsOf(value), BitsOf(expected))
      << json << " is read as " << value << " and not as " << expected;
}

TEST(JsonValue, HasOneOfSixTypes) {
  const struct {
    const char* json;
    Type type;
  } cases[] = {
      {"null", Type::kNull},   {"true", Type::kBool},
      {"false", Type::kBool},  {"0", Type::kNumber},
      {"-1.5", Type::kNumber}, {"\"\"", Type::kText},
      {"[]", Type::kArray},    {"[null]", Type::kArray},
      {"{}", Type::kObject},   {"{\"a\":[]}", Type::kObject},
  };
  for (const auto& [json, type] : cases) {
    const JsonValue value = Parse(json);
    EXPECT_EQ(value.type(), type) << json;
    EXPECT_EQ(value.is_null(), type == Type::kNull);
    EXPECT_EQ(value.is_bool(), type == Type::kBool);
    EXPECT_EQ(value.is_number(), type == Type::kNumber);
    EXPECT_EQ(value.is_text(), type == Type::kText);
    EXPECT_EQ(value.is_array(), type == Type::kArray);
    EXPECT_EQ(value.is_object(), type == Type::kObject);
    EXPECT_EQ(value.boolean().has_value(), type == Type::kBool);
    EXPECT_EQ(value.number().has_value(), type == Type::kNumber);
    EXPECT_EQ(value.text() != nullptr, type == Type::kText);
    EXPECT_TRUE(type == Type::kNumber || !value.integer().has_value());
    EXPECT_TRUE(type == Type::kArray || value.elements().empty());
    EXPECT_TRUE(type == Type::kObject || value.members().empty());
    EXPECT_EQ(value.Find("a") != nullptr, absl::StrContains(json, "a\":"));
  }
  EXPECT_EQ(Parse("true").boolean(), true);
  EXPECT_EQ(Parse("false").boolean(), false);
  EXPECT_TRUE(JsonValue().is_null());
}

TEST(JsonValue, KeepsTheOrderOfElementsAndMembers) {
  const JsonValue value = Parse(
      " {\"b\" :\t[1, [ ], 2.5 ,\"x\"]\r\n, \"a\":{\"b\":true}, "
      "\"\":null } ");
  ASSERT_EQ(value.members().size(), 3);
  EXPECT_EQ(value.members()[0].name, "b");
  EXPECT_EQ(value.members()[1].name, "a");
  EXPECT_EQ(value.members()[2].name, "");
  const JsonValue* const list = value.Find("b");
  ASSERT_EQ(list, &value.members()[0].value);
  ASSERT_EQ(list->elements().size(), 4);
  EXPECT_EQ(list->elements()[0].integer(), 1);
  EXPECT_TRUE(list->elements()[1].is_array());
  EXPECT_EQ(list->elements()[2].number(), 2.5);
  EXPECT_EQ(*list->elements()[3].text(), "x");
  EXPECT_EQ(value.Find("a")->Find("b")->boolean(), true);
  EXPECT_TRUE(value.Find("")->is_null());
  EXPECT_EQ(value.Find("c"), nullptr);
  JsonValue copy = Parse("1");
  copy = value;
  EXPECT_EQ(copy.Find("a")->Find("b")->boolean(), true);
  EXPECT_NE(copy.Find("a"), value.Find("a"));
}

TEST(JsonValue, ReadsNumbersExactly) {
  const struct {
    const char* json;
    double number;
  } cases[] = {
      {"0.0", 0.0},
      {"-0.0", -0.0},
      {"0e0", 0.0},
      {"5.0", 5.0},
      {"5e0", 5.0},
      {"1E+2", 100.0},
      {"1e-2", 0.01},
      {"0.1", 0.1},
      {"1e23", 1e23},
      {"0.30000000000000004", 0.1 + 0.2},
      // The nearest double below and above the middle between two doubles.
      {"9007199254740993.0", 9007199254740992.0},
      {"9007199254740993.00000000000000000000000000000001", 9007199254740994.0},
      {"1.7976931348623157e308", std::numeric_limits<double>::max()},
      {"-1.7976931348623158e308", std::numeric_limits<double>::lowest()},
      {"2.2250738585072014e-308", std::numeric_limits<double>::min()},
      {"2.2250738585072011e-308", 0x0.fffffffffffffp-1022},
      {"4.9406564584124654e-324", std::numeric_limits<double>::denorm_min()},
      {"3e-324", std::numeric_limits<double>::denorm_min()},
      {"1e-999", 0.0},
      {"-1e-999", -0.0},
      {"0e999", 0.0},
      {"0.0e99999999999999999999", 0.0},
      {"1e-99999999999999999999", 0.0},
  };
  for (const auto& [json, number] : cases) {
    const JsonValue value = Parse(json);
    ASSERT_TRUE(value.is_number());
    ExpectSame(*value.number(), number, json);
    EXPECT_EQ(value.integer(), std::nullopt) << json;
  }
  const std::string small = absl::StrCat("0.", std::string(400, '0'), "1e401");
  ExpectSame(*Parse(small).number(), 1.0, small);
  Random random(1);
  for (int round = 0; round < 10000; ++round) {
    const uint64_t bits = random.Below(std::numeric_limits<uint64_t>::max());
    double number = 0;
    std::memcpy(&number, &bits, sizeof(number));
    if (!std::isfinite(number)) continue;
    const std::string json = absl::StrFormat("%.16e", number);
    ExpectSame(*Parse(json).number(), number, json);
  }
}

TEST(JsonValue, TellsIntegersFromOtherNumbers) {
  const struct {
    const char* json;
    std::optional<int64_t> integer;
    double number;
  } cases[] = {
      {"0", 0, 0.0},
      {"-0", 0, -0.0},
      {"5", 5, 5.0},
      {"5.0", std::nullopt, 5.0},
      {"5e0", std::nullopt, 5.0},
      {"-7", -7, -7.0},
      {"9007199254740993", 9007199254740993, 9007199254740992.0},
      {"9223372036854775807", std::numeric_limits<int64_t>::max(),
       9223372036854775808.0},
      {"9223372036854775808", std::nullopt, 9223372036854775808.0},
      {"-9223372036854775808", std::numeric_limits<int64_t>::min(),
       -9223372036854775808.0},
      {"-9223372036854775809", std::nullopt, -9223372036854775808.0},
      {"18446744073709551615", std::nullopt, 18446744073709551616.0},
      {"100000000000000000000000", std::nullopt, 1e23},
  };
  for (const auto& [json, integer, number] : cases) {
    const JsonValue value = Parse(json);
    EXPECT_EQ(value.integer(), integer) << json;
    ASSERT_TRUE(value.is_number());
    ExpectSame(*value.number(), number, json);
  }
}

TEST(JsonValue, ReadsEscapes) {
  EXPECT_EQ(TextOf(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(TextOf(R"("a\u0000b")"), std::string("a\0b", 3));
  EXPECT_EQ(TextOf(R"("\u00e4\u00E4")"), "\xc3\xa4\xc3\xa4");
  EXPECT_EQ(TextOf(R"("\ud800\udc00")"), "\xf0\x90\x80\x80");
  EXPECT_EQ(TextOf(R"("\uD83D\uDe00!")"), "\xf0\x9f\x98\x80!");
  EXPECT_EQ(TextOf(R"("\udbff\udfff")"), "\xf4\x8f\xbf\xbf");
  EXPECT_NE(Parse(R"({"\u0061":1})").Find("a"), nullptr);
}

// Each code of four digits is the character of two or three bytes that have its
// bits, or half of a character.
TEST(JsonValue, ReadsEachCode) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const std::string json = absl::StrFormat("\"\\u%04x\"", code);
    const absl::StatusOr<JsonValue> value = ParseJson(json);
    if (code >= 0xd800 && code < 0xe000) {
      ASSERT_THAT(value, StatusIs(absl::StatusCode::kInvalidArgument,
                                  HasSubstr("half of a character")))
          << json;
      continue;
    }
    ASSERT_THAT(value, IsOk()) << json;
    const std::string& text = *value->text();
    ASSERT_EQ(Utf8Of(text), text) << json;
    ASSERT_EQ(SizeOfFirstUtf8(text), text.size()) << json;
    uint32_t bits = static_cast<unsigned char>(text[0]);
    if (text.size() > 1) bits &= 0xffU >> (text.size() + 1);
    for (size_t i = 1; i < text.size(); ++i) {
      bits = bits << 6 | (static_cast<unsigned char>(text[i]) & 0x3f);
    }
    ASSERT_EQ(bits, code) << json;
  }
}

TEST(JsonValue, ReadsWhatIsWritten) {
  const auto expect_read = [](const std::string& text) {
    std::string json;
    AppendJson(text, json);
    EXPECT_EQ(TextOf(json), Utf8Of(text));
    EXPECT_EQ(Parse(absl::StrCat("{", json, ":1}")).members()[0].name,
              Utf8Of(text));
  };
  std::string all;
  for (int c = 0; c < 0x100; ++c) {
    expect_read(std::string(1, static_cast<char>(c)));
    all += static_cast<char>(c);
  }
  expect_read(all);
  for (const char* const text :
       {"\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
        "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf",
        "m\xc3\xa9trica", "\xe2\x82\xac\xe2\x82", "C:\\new\\u0041", "\"", ""}) {
    expect_read(text);
  }
}

TEST(JsonValue, RefusesWhatIsNotUtf8) {
  for (const char* const bad :
       {"\x80", "\xc3", "\xc3z", "\xe2\x82", "\xc1\xbf", "\xe0\x9f\xbf",
        "\xf0\x8f\xbf\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff",
        "\xf8\x88\x80\x80\x80"}) {
    EXPECT_THAT(ParseJson(absl::StrCat("[\"a\xc3\xa4", bad, "\"]")),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         StartsWith("byte 5: the byte \\x")));
    EXPECT_THAT(ParseJson(absl::StrCat("{\"", bad, "\":1}")),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         StartsWith("byte 2: the byte \\x")));
  }
}

TEST(JsonValue, SaysWhatIsWrong) {
  const struct {
    absl::string_view json;
    const char* message;
  } cases[] = {
      {"", "byte 0: the JSON is empty, and should have a value"},
      {" \n", "byte 2: the JSON should go on with a value, but ends here"},
      {"x", "byte 0: the JSON should go on with a value, but goes on with 'x'"},
      {absl::string_view("\0", 1),
       "byte 0: the JSON should go on with a value, but goes on with '\\x00'"},
      {"\xef\xbb\xbf{}",
       "byte 0: the JSON should go on with a value, but goes on with '\\xef'"},
      {"\v1",
       "byte 0: the JSON should go on with a value, but goes on with '\\x0b'"},
      // Words.
      {"NaN",
       "byte 0: the JSON should go on with a value, but goes on with 'NaN'"},
      {"Infinity",
       "byte 0: the JSON should go on with a value, but goes on with "
       "'Infinity'"},
      {"-Infinity",
       "byte 1: the JSON should go on with a digit, but goes on with "
       "'Infinity'"},
      {"nan",
       "byte 0: the JSON should go on with a value such as null, but goes on "
       "with 'nan'"},
      {"tru",
       "byte 0: the JSON should go on with a value such as true, but goes on "
       "with 'tru'"},
      {"[False]",
       "byte 1: the JSON should go on with a value, but goes on with 'False'"},
      {"[falsy]",
       "byte 1: the JSON should go on with a value such as false, but goes on "
       "with 'falsy'"},
      {"truex", "byte 4: the JSON should end here, but goes on with 'x'"},
      {"TRUE",
       "byte 0: the JSON should go on with a value, but goes on with 'TRUE'"},
      // Numbers.
      {"+1",
       "byte 0: the JSON should go on with a value, but goes on with '+'"},
      {".5",
       "byte 0: the JSON should go on with a value, but goes on with '.'"},
      {"-", "byte 1: the JSON should go on with a digit, but ends here"},
      {"--1",
       "byte 1: the JSON should go on with a digit, but goes on with '-'"},
      {"-.5",
       "byte 1: the JSON should go on with a digit, but goes on with '.'"},
      {"1.", "byte 2: the JSON should go on with a digit, but ends here"},
      {"[1.]",
       "byte 3: the JSON should go on with a digit, but goes on with ']'"},
      {"1.e5",
       "byte 2: the JSON should go on with a digit, but goes on with 'e5'"},
      {"1e", "byte 2: the JSON should go on with a digit, but ends here"},
      {"1e+", "byte 3: the JSON should go on with a digit, but ends here"},
      {"1e+-1",
       "byte 3: the JSON should go on with a digit, but goes on with '-'"},
      {"1e5.0", "byte 3: the JSON should end here, but goes on with '.'"},
      {"00", "byte 0: a number of several digits must not begin with 0"},
      {"[7,-01]", "byte 4: a number of several digits must not begin with 0"},
      {"01.5", "byte 0: a number of several digits must not begin with 0"},
      {"0x10", "byte 1: the JSON should end here, but goes on with 'x10'"},
      {"1_000", "byte 1: the JSON should end here, but goes on with '_'"},
      {"1f", "byte 1: the JSON should end here, but goes on with 'f'"},
      {"[1e999]",
       "byte 1: the number '1e999' is too large: at most 1.797e308 fits into "
       "a double"},
      {"-1.7976931348623159e308",
       "byte 0: the number '-1.7976931348623159e308' is too large: at most "
       "1.797e308 fits into a double"},
      {"1e99999999999999999999",
       "byte 0: the number '1e99999999999999999999' is too large: at most "
       "1.797e308 fits into a double"},
      // Texts.
      {"'a'",
       "byte 0: the JSON should go on with a value, but goes on with '\\''"},
      {"\"",
       "byte 1: the JSON should go on with the closing quote of a text, but "
       "ends here"},
      {"\"a\\\"",
       "byte 4: the JSON should go on with the closing quote of a text, but "
       "ends here"},
      {"\"a\nb\"",
       "byte 2: the control character \\x0a in a text should be written as "
       "\\u000a"},
      {"[\"\t\"]",
       "byte 2: the control character \\x09 in a text should be written as "
       "\\u0009"},
      {absl::string_view("\"\0\"", 3),
       "byte 1: the control character \\x00 in a text should be written as "
       "\\u0000"},
      {"{\"\x1f\":1}",
       "byte 2: the control character \\x1f in a text should be written as "
       "\\u001f"},
      {R"("\x41")",
       "byte 2: the JSON should go on with one of \" \\ / b f n r t u after a "
       "backslash, but goes on with 'x41'"},
      {R"("\)",
       "byte 2: the JSON should go on with one of \" \\ / b f n r t u after a "
       "backslash, but ends here"},
      {absl::string_view("\"\\\0\"", 4),
       "byte 2: the JSON should go on with one of \" \\ / b f n r t u after a "
       "backslash, but goes on with '\\x00'"},
      {R"("\u12g4")",
       "byte 5: the JSON should go on with four hexadecimal digits after \\u, "
       "but goes on with 'g4'"},
      {R"("\u12")",
       "byte 5: the JSON should go on with four hexadecimal digits after \\u, "
       "but goes on with '\\\"'"},
      {R"("\U0041")",
       "byte 2: the JSON should go on with one of \" \\ / b f n r t u after a "
       "backslash, but goes on with 'U0041'"},
      {R"("\ud800")",
       "byte 1: \\ud800 is the first half of a character, and the second half "
       "is missing"},
      {R"("a\uDBFFa")",
       "byte 2: \\udbff is the first half of a character, and the second half "
       "is missing"},
      {R"("\ud800\n")",
       "byte 1: \\ud800 is the first half of a character, and the second half "
       "is missing"},
      {R"("\ud800\ud800")",
       "byte 1: \\ud800 is the first half of a character, and the second half "
       "is missing"},
      {R"("\ud800\ue000")",
       "byte 1: \\ud800 is the first half of a character, and the second half "
       "is missing"},
      {R"("\udc00\ud800")",
       "byte 1: \\udc00 is the second half of a character, and the first half "
       "is missing"},
      {R"("\udfff")",
       "byte 1: \\udfff is the second half of a character, and the first half "
       "is missing"},
      {"\"\xff\"",
       "byte 1: the byte \\xff is not part of a character in UTF-8"},
      // Arrays.
      {"[", "byte 1: the JSON should go on with a value, but ends here"},
      {"[1", "byte 2: the JSON should go on with ',' or ']', but ends here"},
      {"[1,", "byte 3: the JSON should go on with a value, but ends here"},
      {"[1,]",
       "byte 3: the JSON should go on with a value, but goes on with ']'"},
      {"[,1]",
       "byte 1: the JSON should go on with a value, but goes on with ','"},
      {"[1 2]",
       "byte 3: the JSON should go on with ',' or ']', but goes on with '2'"},
      {"[1}",
       "byte 2: the JSON should go on with ',' or ']', but goes on with '}'"},
      {"[1:2]",
       "byte 2: the JSON should go on with ',' or ']', but goes on with ':'"},
      {"]", "byte 0: the JSON should go on with a value, but goes on with ']'"},
      // Objects.
      {"{",
       "byte 1: the JSON should go on with a name in quotes, but ends here"},
      {"{a:1}",
       "byte 1: the JSON should go on with a name in quotes, but goes on with "
       "'a'"},
      {"{1:2}",
       "byte 1: the JSON should go on with a name in quotes, but goes on with "
       "'1'"},
      {"{,}",
       "byte 1: the JSON should go on with a name in quotes, but goes on with "
       "','"},
      {"{\"a\":1,}",
       "byte 7: the JSON should go on with a name in quotes, but goes on with "
       "'}'"},
      {"{\"a\"}",
       "byte 4: the JSON should go on with ':' and a value, but goes on with "
       "'}'"},
      {"{\"a\",1}",
       "byte 4: the JSON should go on with ':' and a value, but goes on with "
       "','"},
      {"{\"a\":}",
       "byte 5: the JSON should go on with a value, but goes on with '}'"},
      {"{\"a\":1",
       "byte 6: the JSON should go on with ',' or '}', but ends here"},
      {"{\"a\":1 \"b\":2}",
       "byte 7: the JSON should go on with ',' or '}', but goes on with "
       "'\\\"'"},
      {"{\"a\":1]",
       "byte 6: the JSON should go on with ',' or '}', but goes on with ']'"},
      {R"({"a":1, "b":2, "\u0061":3})",
       "byte 15: the object already has a "
       "member 'a'"},
      {R"({"":1,"":1})", "byte 6: the object already has a member ''"},
      {R"([{"x":{"a":1,"a":1}}])",
       "byte 13: the object already has a member 'a'"},
      // Other things around the value.
      {"1 2", "byte 2: the JSON should end here, but goes on with '2'"},
      {"{} {}", "byte 3: the JSON should end here, but goes on with '{'"},
      {"[]]", "byte 2: the JSON should end here, but goes on with ']'"},
      {"1,", "byte 1: the JSON should end here, but goes on with ','"},
      {absl::string_view("1\0", 2),
       "byte 1: the JSON should end here, but goes on with '\\x00'"},
      {"[1] // one", "byte 4: the JSON should end here, but goes on with '/'"},
      {"/* one */ 1",
       "byte 0: the JSON should go on with a value, but goes on with '/'"},
      {"# one\n1",
       "byte 0: the JSON should go on with a value, but goes on with '#'"},
  };
  for (const auto& [json, message] : cases) {
    EXPECT_THAT(ParseJson(json),
                StatusIs(absl::StatusCode::kInvalidArgument, message))
        << json;
  }
}

TEST(JsonValue, ShowsOnlyTheBeginOfALongWord) {
  const std::string begin(40, 'a');
  EXPECT_THAT(ParseJson(absl::StrCat("[", Repeated(1000, "a"), "]")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       absl::StrCat("byte 1: the JSON should go on with a "
                                    "value, but goes on with '",
                                    begin, "...'")));
  const std::string name = absl::StrCat("\"", Repeated(1000, "a"), "\"");
  EXPECT_THAT(
      ParseJson(absl::StrCat("{", name, ":1,", name, ":1}")),
      StatusIs(absl::StatusCode::kInvalidArgument,
               absl::StrCat("byte 1006: the object already has a member '",
                            begin, "...'")));
}

TEST(JsonValue, RefusesTooManyLevels) {
  for (const char* const begin : {"[", "{\"a\":", " [ [ 1 ] , "}) {
    const char* const end = absl::StrContains(begin, '{') ? "}" : "]";
    const auto nested = [&](int levels) {
      return absl::StrCat(Repeated(levels, begin), "[]", Repeated(levels, end));
    };
    LOCKSTEP_EXPECT_OK(ParseJson(nested(kMostJsonLevels - 1)));
    for (const int levels : {kMostJsonLevels, kMostJsonLevels + 1, 1000000}) {
      EXPECT_THAT(ParseJson(nested(levels)),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           HasSubstr(": objects and arrays may stand in each "
                                     "other on at most 32 levels")));
    }
  }
  EXPECT_THAT(ParseJson(std::string(1000000, '[')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("byte 32: objects and arrays")));
  // Values that stand side by side are on the same level.
  LOCKSTEP_EXPECT_OK(
      ParseJson(absl::StrCat("[", Repeated(1000, "[{}],"), "[{}]]")));
}

TEST(JsonValue, FindsTheSameNameAmongFewAndMany) {
  for (const int count : {1, 2, 15, 16, 17, 18, 40, 3000}) {
    std::string json = "{";
    for (int i = 0; i < count; ++i) absl::StrAppend(&json, "\"n", i, "\":1,");
    const JsonValue value = Parse(absl::StrCat(json, "\"last\":2}"));
    EXPECT_EQ(value.members().size(), count + 1);
    EXPECT_EQ(value.Find("last")->integer(), 2);
    for (const int twice : {0, count / 2, count - 1}) {
      EXPECT_THAT(ParseJson(absl::StrCat(json, "\"n", twice, "\":1}")),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           absl::StrCat("byte ", json.size(),
                                        ": the object already has a member 'n",
                                        twice, "'")));
    }
    // Objects have names of their own.
    LOCKSTEP_EXPECT_OK(ParseJson(
        absl::StrCat(json, "\"o\":", json, "\"o\":[", json, "\"o\":1}]}}")));
  }
}

constexpr absl::string_view kGood =
    R"({"format":"lockstep metrics","time":1764547200.250000,"rank":0,)"
    R"("loss":-2.5e-3,"nan":null, "ok":[true,false,"\u00e4\ud83d\ude00\n"],)"
    "\"m\xc3\xa9trica\":{\"\":[],\"a\":{}}}";

TEST(JsonValue, RefusesWhatIsCut) {
  LOCKSTEP_ASSERT_OK(ParseJson(kGood));
  for (size_t bytes = 0; bytes < kGood.size(); ++bytes) {
    // The address sanitizer finds out if more than these bytes are read.
    const std::vector<char> cut(kGood.begin(), kGood.begin() + bytes);
    EXPECT_THAT(
        ParseJson(absl::string_view(cut.data(), cut.size())),
        StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("byte ")))
        << bytes;
  }
}

// Any bytes are a value or an error.
TEST(JsonValue, AnyBytes) {
  Random random(1);
  int parsed = 0;
  for (int round = 0; round < 50000; ++round) {
    const std::string bytes = Mangled(
        std::string(kGood), "{}[]\",: 0123456789.eE+-\\utrufalsn", random);
    const absl::StatusOr<JsonValue> value = ParseJson(bytes);
    if (value.ok()) {
      ++parsed;
      ASSERT_EQ(Utf8Of(bytes), bytes);
    } else {
      ASSERT_THAT(value, StatusIs(absl::StatusCode::kInvalidArgument,
                                  StartsWith("byte ")));
    }
  }
  EXPECT_GT(parsed, 1000);
}

}  // namespace
}  // namespace lockstep::internal_base
