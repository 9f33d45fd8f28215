#include "lockstep/loader/datasets/json_number.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_loader {
namespace {

using ::testing::HasSubstr;

constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;
constexpr absl::StatusCode kNotFound = absl::StatusCode::kNotFound;

using Pairs = std::vector<std::pair<std::string, std::string>>;

TEST(FindJsonNumber, ReturnsTheNumberAsItIsWritten) {
  for (const char* const number :
       {"0",         "-0",    "7",
        "-7",        "10",    "1234567890123456789012",
        "0.5",       "-0.25", "1.50",
        "0e0",       "1e9",   "1E9",
        "1e+9",      "1E-9",  "0.1e09",
        "-1.5E+300", "NaN",   "Infinity",
        "-Infinity", "true",  "false"}) {
    for (const std::string& text :
         {absl::StrCat("{\"a\":", number, "}"),
          absl::StrCat("{\"a\":", number, ",\"b\":1}"),
          absl::StrCat(" {\t\"a\"\r\n: ", number, "\n}\n "),
          absl::StrCat("{\"b\": [1, 2], \"a\" :", number, " }")}) {
      EXPECT_THAT(FindJsonNumber(text, "a"), IsOkAndHolds(number)) << text;
    }
    EXPECT_THAT(
        FindJsonNumber(absl::StrCat("{\"a\": {\"b\": ", number, "}}"), "a.b"),
        IsOkAndHolds(number));
  }
}

TEST(FindJsonNumber, FollowsTheKeys) {
  const std::string text =
      R"({"x": {"a": 1}, "a": {"x": 2, "b": {"a": 3, "c": 4}, "c": 5},
          "b": 6, "": 7, "c": {"": 8}, "d e": 9, "ä": 10, "A": 11,
          "l": [{"a": 12}], "f\u0061\"": 13, "a.b": 14})";
  for (const auto& [key, number] : Pairs{{"x.a", "1"},
                                         {"a.x", "2"},
                                         {"a.b.a", "3"},
                                         {"a.b.c", "4"},
                                         {"a.c", "5"},
                                         {"b", "6"},
                                         {"", "7"},
                                         {"c.", "8"},
                                         {"d e", "9"},
                                         {"ä", "10"},
                                         {"A", "11"},
                                         {"f\\u0061\\\"", "13"}}) {
    EXPECT_THAT(FindJsonNumber(text, key), IsOkAndHolds(number)) << key;
  }
  for (const char* const key :
       {"c.a", "e", "x.b", "x.a.b", "a.a", "B", "a.b.b", "l.a", "l.0", "fa\"",
        "x.a.", ".", "b.", "a.b.c.d"}) {
    EXPECT_THAT(FindJsonNumber(text, key),
                StatusIs(kNotFound, HasSubstr("no value at '")))
        << key;
  }
}

// As in Python, the last of several values of a key counts.
TEST(FindJsonNumber, TheLastValueOfAKeyCounts) {
  for (const auto& [text, number] :
       Pairs{{R"({"a": 1, "a": 2})", "2"},
             {R"({"a": {"b": 1}, "a": {"b": 2}})", "2"},
             {R"({"a": 7, "a": {"b": 3}})", "3"},
             {R"({"a": {"b": 1, "b": 4}})", "4"},
             {R"({"a": {"b": {}, "b": 5}, "b": 1})", "5"}}) {
    EXPECT_THAT(
        FindJsonNumber(text, text.find('b') == std::string::npos ? "a" : "a.b"),
        IsOkAndHolds(number))
        << text;
  }
  for (const char* const text :
       {R"({"a": {"b": 1}, "a": {}})", R"({"a": {"b": 1}, "a": 2})",
        R"({"a": {"b": 1}, "a": {"c": 2}})", R"({"a": {"b": 1}, "a": []})"}) {
    EXPECT_THAT(FindJsonNumber(text, "a.b"),
                StatusIs(kNotFound, HasSubstr("no value at 'a.b'")))
        << text;
  }
}

TEST(FindJsonNumber, SaysWhatStandsThereInstead) {
  for (const auto& [value, words] :
       Pairs{{"\"7\"", "has a text at 'a'"},
             {"\"\"", "has a text at 'a'"},
             {"[7]", "has a list at 'a'"},
             {"[]", "has a list at 'a'"},
             {"{\"a\": 7}", "has an object at 'a'"},
             {"{}", "has an object at 'a'"}}) {
    EXPECT_THAT(
        FindJsonNumber(absl::StrCat("{\"b\": 1, \"a\": ", value, "}"), "a"),
        StatusIs(kDataLoss, HasSubstr(words)));
    // The last one counts here too.
    EXPECT_THAT(
        FindJsonNumber(absl::StrCat("{\"a\": 1, \"a\": ", value, "}"), "a"),
        StatusIs(kDataLoss, HasSubstr(words)));
    // It does not matter elsewhere.
    EXPECT_THAT(
        FindJsonNumber(absl::StrCat("{\"b\": ", value, ", \"a\": 7}"), "a"),
        IsOkAndHolds("7"));
  }
  for (const char* const text :
       {"7", "[]", "[{\"a\": 7}]", "\"a\"", "null", "{}", " {} ", "true", "NaN",
        "{\"a\": null}", "{\"a\": 1, \"a\": null}"}) {
    EXPECT_THAT(FindJsonNumber(text, "a"),
                StatusIs(kNotFound, HasSubstr("its JSON has no value at 'a'")));
  }
  EXPECT_THAT(FindJsonNumber("{}", "a\n"),
              StatusIs(kNotFound, HasSubstr("at 'a\\n'")));
}

TEST(FindJsonNumber, SkipsTextsAndLists) {
  for (const char* const value :
       {R"("")", R"("\"\\\/\b\f\n\r\t\u00fF")", R"("a\\")", R"("}")", R"(",")",
        R"("\"a\": 1")", "\"ä\x7f\xff\"", "[ ]", "[[],[[]]]",
        "[1 , -2.5e3,\"]\", null]", "{ }", R"({"a": {"a": 1}})"}) {
    EXPECT_THAT(FindJsonNumber(absl::StrCat("{\"b\": ", value,
                                            ", \"a\": 7, \"c\": ", value, "}"),
                               "a"),
                IsOkAndHolds("7"))
        << value;
  }
}

// Each text is wrong from that byte on.
TEST(FindJsonNumber, RefusesWhatIsNoJson) {
  for (const auto& [text, byte] : std::vector<std::pair<std::string, int>>{
           {"", 0},
           {"  ", 2},
           {"a", 0},
           {"{", 1},
           {"{\"a\"", 4},
           {"{\"a\":", 5},
           {"{\"a\":7", 6},
           {"{\"a\":7]", 6},
           {"{\"a\":7,", 7},
           {"{\"a\":7,}", 7},
           {"{\"a\":7 8}", 7},
           {"{\"a\":7}}", 7},
           {"{\"a\":7}x", 7},
           {"{\"a\":7} {}", 8},
           {std::string("{\"a\":7}\0", 8), 7},
           {"\xef\xbb\xbf{\"a\":7}", 0},  // a byte order mark
           {"{\"a\":7,,\"b\":1}", 7},
           {"{,\"a\":7}", 1},
           {"{\"a\" 7}", 5},
           {"{\"a\"::7}", 5},
           {"{a:7}", 1},
           {"{'a':7}", 1},
           {"{7:7}", 1},
           {"{\"a\":07}", 6},
           {"{\"a\":-}", 6},
           {"{\"a\":+7}", 5},
           {"{\"a\":.5}", 5},
           {"{\"a\":5.}", 7},
           {"{\"a\":5.e1}", 7},
           {"{\"a\":5e}", 7},
           {"{\"a\":5e+}", 8},
           {"{\"a\":5e+-1}", 8},
           {"{\"a\":5e1.5}", 8},
           {"{\"a\":0x1}", 6},
           {"{\"a\":1_000}", 6},
           {"{\"a\":--1}", 6},
           {"{\"a\":-NaN}", 6},
           {"{\"a\":nan}", 5},
           {"{\"a\":inf}", 5},
           {"{\"a\":True}", 5},
           {"{\"a\":tru}", 5},
           {"{\"a\":truex}", 9},
           {"{\"a\":nul}", 5},
           {"{\"a\":7, // x\n}", 8},
           {"{\"a\":7}\v", 7},
           {"{\"b\":\"", 6},
           {"{\"b\":\"\\", 7},
           {"{\"b\":\"\\\"}", 9},
           {"{\"b\":\"\\u12\"", 11},
           {"{\"b\":\"\\u123", 11},
           {"[1,2", 4},
           {"[1,]", 3},
           {"[,1]", 1},
           {"[1}", 2},
           {"[1 2]", 3},
           {"]", 0}}) {
    EXPECT_THAT(FindJsonNumber(text, "a"),
                StatusIs(kDataLoss,
                         HasSubstr(absl::StrCat("no JSON from byte ", byte))))
        << text;
  }
  for (const std::string& value :
       {std::string("\"\n\""), std::string("\"\t\""), std::string("\"\0\"", 3),
        std::string("\"\x1f\""), std::string(R"("\x41")"),
        std::string(R"("\'")"), std::string(R"("\u00g0")"),
        std::string("\"\\\0\"", 4), std::string(R"("\U0041")")}) {
    for (const std::string& text : {absl::StrCat("{\"a\":7,\"b\":", value, "}"),
                                    absl::StrCat("{\"a\":7,", value, ":1}")}) {
      EXPECT_THAT(FindJsonNumber(text, "a"),
                  StatusIs(kDataLoss, HasSubstr("no JSON from byte ")))
          << text;
    }
  }
}

TEST(FindJsonNumber, AllowsAHundredNestedObjectsAndLists) {
  const auto lists = [](int count, const std::string& inside) {
    std::string text = "{\"a\":7,\"b\":";
    for (int i = 1; i < count; ++i) text += "[";
    text += inside;
    for (int i = 1; i < count; ++i) text += "]";
    return text + "}";
  };
  const auto objects = [](int count, const std::string& inside) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "{\"a\":";
    text += inside;
    for (int i = 0; i < count; ++i) text += "}";
    return text;
  };
  std::string key = "a";
  for (int i = 1; i < 100; ++i) key += ".a";
  EXPECT_THAT(FindJsonNumber(objects(100, "7"), key), IsOkAndHolds("7"));
  for (const char* const inside : {"", "7", "\"\"", "null"}) {
    EXPECT_THAT(FindJsonNumber(lists(100, inside), "a"), IsOkAndHolds("7"));
  }
  for (const char* const inside : {"[]", "{}", "[7]", "{\"a\":7}"}) {
    EXPECT_THAT(FindJsonNumber(lists(99, inside), "a"), IsOkAndHolds("7"));
    EXPECT_THAT(FindJsonNumber(lists(100, inside), "a"),
                StatusIs(kDataLoss, HasSubstr("no JSON from byte 110")));
    EXPECT_THAT(FindJsonNumber(objects(100, inside), key),
                StatusIs(kDataLoss, HasSubstr("no JSON from byte 500")));
  }
  // It does not take the stack of a program.
  EXPECT_THAT(FindJsonNumber(lists(1000000, "7"), "a"),
              StatusIs(kDataLoss, HasSubstr("no JSON from byte 110")));
}

}  // namespace
}  // namespace lockstep::internal_loader
