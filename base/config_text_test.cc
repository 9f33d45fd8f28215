#include "lockstep/base/config_text.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_matchers.h"
#ifdef LOCKSTEP_WITH_TOML
#include "toml.hpp"
#endif

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

#ifndef LOCKSTEP_WITH_TOML

TEST(ConfigText, NamesTheFlagThatBringsItIn) {
  const absl::StatusOr<Config> config = ParseConfig("a = 1", "job.toml");
  EXPECT_THAT(config.status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("--@lockstep//config:with_toml=true")));
  Config table;
  EXPECT_THAT(OverrideConfig("a=1", table),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("--@lockstep//config:with_toml=true")));
}

#else

constexpr char kJob[] = R"(# A job.
seed = 7
name = "ring"

[loader.train]
num_workers = 2
ratios = [0.5, 1, 1e-3]
dataset = {name = 'C:\new', size = 2_003, wide = true}

[group]
deadline = "10m"
a.b.c = [[1], [], [{x = -1}]]
)";

Config Parsed(absl::string_view text) {
  absl::StatusOr<Config> config = ParseConfig(text, "job.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *std::move(config) : Config();
}

TEST(ParseConfig, ReadsAllKindsOfValuesInTheirOrder) {
  EXPECT_EQ(Parsed(kJob).ToString(),
            "{seed = 7, name = \"ring\", loader = {train = {num_workers = 2, "
            "ratios = [0.5, 1, 0.001], dataset = {name = \"C:\\\\new\", size = "
            "2003, wide = true}}}, group = {deadline = \"10m\", a = {b = {c = "
            "[[1], [], [{x = -1}]]}}}}");
  EXPECT_EQ(Parsed("").ToString(), "{}");
  EXPECT_EQ(
      Parsed("\xef\xbb\xbfzeta = \"\xc3\xa9\"\r\nalpha = 1\r\n").ToString(),
      "{zeta = \"\xc3\xa9\", alpha = 1}");
  EXPECT_EQ(Parsed("a = -9223372036854775808\nb = 0xff").ToString(),
            "{a = -9223372036854775808, b = 255}");
}

TEST(ParseConfig, TakesStringsWhereTheyMayStand) {
  EXPECT_EQ(Parsed(R"('é'."b".c=['é',"", {'x'.y = ''},
'''z'''']
[t."u"] # é
v = """"é""""
)")
                .ToString(),
            R"({"é" = {b = {c = ["é", "", {x = {y = ""}}, "z'"]}}, )"
            R"(t = {u = {v = "\"é\""}}})");
}

TEST(ParseConfig, KnowsWhereEachValueStands) {
  const Config job = Parsed(kJob);
  EXPECT_EQ(job.location(), "job.toml");
  EXPECT_EQ(job.Find("name")->location(), "job.toml:3:1");
  const Config* const train = job.Find("loader")->Find("train");
  EXPECT_EQ(train->location(), "job.toml:5:9");
  EXPECT_EQ(train->Find("ratios")->location(), "job.toml:7:1");
  EXPECT_EQ((*train->Find("ratios")->As<Config::Array>())[1].location(),
            "job.toml:7:16");
  EXPECT_EQ(train->Find("dataset")->Find("size")->location(), "job.toml:8:29");
  EXPECT_EQ(job.Find("group")->Find("a")->Find("b")->location(),
            "job.toml:12:3");
}

TEST(ParseConfig, SaysWhatIsWrongAndWhere) {
  const struct {
    const char* text;
    const char* place;
    const char* message;
  } cases[] = {
      {"a = ", "job.toml:1:5: ", "this is not TOML: "},
      {"\n  a = 1 b = 2", "job.toml:2:9: ", "this is not TOML: "},
      {"a = 1\na = 2\n", "job.toml:2:", "this is not TOML: "},
      {"[a]\nb = 1\n[a]\n", "job.toml:3:", "this is not TOML: "},
      {"a = ring", "job.toml:1:5: ", "this is not TOML: "},
      {"a = \"x", "job.toml:1:", "this is not TOML: "},
      {"a = 9223372036854775808", "job.toml:1:", "this is not TOML: "},
      {"a = \"\xff\"", "job.toml:1:", "this is not TOML: "},
      {"a = \"\"\"\\\\ \\\xef\xbb\xaf\"\"\"",
       "job.toml:1: ", "a backslash can't be"},
      {"a = \"\"\"\\\n \xc3\xa9\"\"\"", "job.toml:1: ", "a backslash can't be"},
      {"a = first", "job.toml:1:", "; a text is in quotes, and true is in"},
      {"[[[1]]]", "job.toml:", "this is not TOML"},
      {"\n\xef\xb9\xbf# a",
       "job.toml:2: ", "letters other than a to z belong in quotes"},
      {"a = +:\"\xcf\x85\"", "job.toml:1: ", "a quote is in a word"},
      {"a = 1.\"\xcf\x85\"", "job.toml:1: ", "a quote is in a word"},
      {"a = [2, 1.'\xcf\x85']", "job.toml:1: ", "a quote is in a word"},
      {"a = \"\"\"\"\"\"\"\"\"", "job.toml:1: ", "a quote is in a word"},
      {"a = 2=\"-\xc3\xbc=", "job.toml:1: ", "a quote is in a word"},
      {"a = 2[\"\xc3\xbc\"]", "job.toml:1: ", "a quote is in a word"},
      {"a = 2{\"\xc3\xbc\"}", "job.toml:1: ", "a quote is in a word"},
      {"\nday = 2026-11-24",
       "job.toml:2:1: ", "a date or a time is no setting; put it in quotes"},
      {"x = [1, 07:30:00]",
       "job.toml:1:9: ", "a date or a time is no setting; put it in quotes"},
  };
  for (const auto& each : cases) {
    EXPECT_THAT(ParseConfig(each.text, "job.toml").status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(each.place), HasSubstr(each.message))))
        << each.text;
  }
}

std::string Repeated(absl::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) absl::StrAppend(&all, text);
  return all;
}

TEST(ParseConfig, RefusesWhatIsTooLong) {
  EXPECT_THAT(
      ParseConfig(std::string(kMostConfigBytes + 1, '\n'), "job.toml").status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("1048576 bytes at most")));
  LOCKSTEP_EXPECT_OK(
      ParseConfig(std::string(kMostConfigBytes, '\n'), "job.toml"));
}

TEST(ParseConfig, RefusesWhatIsTooDeep) {
  std::string arrays_of_tables;  // no single line of it is too deep
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&arrays_of_tables, "[[", Repeated("a.", i), "a]]\n");
  }
  for (const std::string& text : {
           Repeated("a.", 65) + "a = 1",
           "[" + Repeated("a.", 65) + "a]",
           "a = " + Repeated("[", 65) + Repeated("]", 65),
           "a = " + Repeated("{a.b.c=", 22) + "1" + Repeated("}", 22),
           Repeated("'a,'.\"\\\"b\".", 33) + "a = 1",
           "x = \"\"\"\n\"\\\"#\"\"\"\"\"\n" + Repeated("a.", 65) + "a = 1",
           Repeated("a.", 400'000) + "a = 1",
           "[" + Repeated("a.", 40) + "a]\n" + Repeated("a.", 30) + "a = 1",
           arrays_of_tables,
           "a = " + Repeated("[", 400'000),
       }) {
    EXPECT_THAT(ParseConfig(text, "job.toml").status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("there are more than 64 tables and arrays")))
        << text.substr(0, 40);
  }
}

TEST(ParseConfig, RefusesLongKeys) {
  const std::string key(128, 'k');
  LOCKSTEP_EXPECT_OK(ParseConfig("\n" + key + " = 1", "job.toml"));
  EXPECT_THAT(ParseConfig("\n" + key + "k = 1", "job.toml"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "job.toml:2:1: a key has 128 bytes at most"));
}

// Brackets and dots that make no tables do not count.
TEST(ParseConfig, TakesDotsWhereTheyAreNoTables) {
  for (const std::string& text : {
           Repeated("a.", 63) + "a = 1",
           "a = " + Repeated("[", 63) + Repeated("]", 63),
           "a = \"" + Repeated("a.", 1000) + "\"",
           "a = '''" + Repeated("a.\n'", 1000) + "'''",
           "a = 1 # " + Repeated("a.", 1000),
           "a = [" + Repeated("1.5, ", 1000) + "]",
           "a = [" + Repeated("\n[1.5, 2.5],", 1000) + "]",
           "a = \"\\\"\" # " + Repeated("[.", 1000),
       }) {
    LOCKSTEP_EXPECT_OK(ParseConfig(text, "job.toml")) << text.substr(0, 40);
  }
}

TEST(ConfigToText, IsReadBack) {
  const Config job = Parsed(kJob);
  EXPECT_EQ(job.ToText(), R"(seed = 7
name = "ring"

[loader]

[loader.train]
num_workers = 2
ratios = [0.5, 1, 0.001]

[loader.train.dataset]
name = "C:\\new"
size = 2003
wide = true

[group]
deadline = "10m"

[group.a]

[group.a.b]
c = [[1], [], [{x = -1}]]
)");
  EXPECT_EQ(Parsed(job.ToText()).ToString(), job.ToString());
}

TEST(ConfigToText, QuotesWhatNeedsIt) {
  Config odd;
  odd.Set("a b", "line\n\"quoted\" \\ \x7f tab\t");
  odd.Set("", Config()).Set("x.y", 1.0);
  const Config again = Parsed(odd.ToText());
  EXPECT_EQ(again.ToString(), odd.ToString()) << odd.ToText();
}

TEST(ReadConfigFile, ReadsAFile) {
  const std::string path = testing::TempDir() + "/job.toml";
  std::ofstream(path) << kJob;
  const absl::StatusOr<Config> job = ReadConfigFile(path);
  LOCKSTEP_ASSERT_OK(job);
  EXPECT_EQ(job->ToString(), Parsed(kJob).ToString());
  EXPECT_EQ(job->Find("seed")->location(), path + ":2:1");
}

TEST(ReadConfigFile, SaysWhyItCanNot) {
  const std::string none = testing::TempDir() + "/none.toml";
  EXPECT_THAT(ReadConfigFile(none).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(none)));
  EXPECT_THAT(ReadConfigFile("/").status().message(),
              HasSubstr("can't read the configuration /: "));
  EXPECT_THAT(ReadConfigFile("/dev/zero").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("1048576 bytes at most")));
}

TEST(OverrideConfig, SetsValues) {
  Config job = Parsed(kJob);
  for (const char* const assignment : {
           "loader.train.num_workers=4",
           "loader.train.dataset.name=ring of 7",
           "loader.train.ratios=[1, 2]",
           "loader.test={sampler = {name = \"distributed\"}}",
           "group.deadline=inf",
           "group.a=2026-11-24",
           "name = \"4\"",
           "seed=",
           "day=10m # late",
           "\"odd key\".x=a=b",
           "quiet=true",
           "two=1\nx=2",
       }) {
    LOCKSTEP_EXPECT_OK(OverrideConfig(assignment, job)) << assignment;
  }
  EXPECT_EQ(
      job.ToString(),
      "{seed = \"\", name = \"4\", loader = {train = {num_workers = 4, "
      "ratios = [1, 2], dataset = {name = \"ring of 7\", size = 2003, "
      "wide = true}}, test = {sampler = {name = \"distributed\"}}}, group "
      "= {deadline = \"inf\", a = \"2026-11-24\"}, day = \"10m # late\", "
      "\"odd key\" = {x = \"a=b\"}, quiet = true, two = \"1\\u000ax=2\"}");
  EXPECT_EQ(job.Find("loader")->Find("train")->Find("num_workers")->location(),
            "--set loader.train.num_workers");
}

TEST(OverrideConfig, SaysWhatIsNoAssignment) {
  const struct {
    const char* assignment;
    const char* message;
  } cases[] = {
      {"", "'' should be KEY=VALUE, such as loader.train.num_workers=4"},
      {"quiet", "'quiet' should be KEY=VALUE"},
      {"=4", "'' should be words of letters, digits"},
      {"a..b=4", "'a..b' should be words of letters, digits"},
      {"[x]\na=4", "should be words of"},
      {"a b=4", "'a b' should be words of"},
      {"a#=4", "'a#' should be words of"},
      {"name.first=4",
       "--set name.first: 'name' is no table of settings, but \"ring\", from "
       "job.toml:3:1"},
      {"name=\xff", "--set name: the value should be text in UTF-8"},
      {"loader.train.num_workers.x.y=4",
       "'loader.train.num_workers' is no table of settings, but 2"},
  };
  for (const auto& each : cases) {
    Config job = Parsed(kJob);
    EXPECT_THAT(
        OverrideConfig(each.assignment, job),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(each.message)))
        << each.assignment;
    EXPECT_EQ(job.ToString(), Parsed(kJob).ToString());
  }
}

// A program may use toml++ itself, and with exceptions.
TEST(Toml, OfAProgramStaysAsItIs) {
  EXPECT_EQ(toml::parse("x = 7")["x"].value<int>(), 7);
  EXPECT_THROW(toml::parse("x = "), toml::parse_error);
  EXPECT_FALSE(ParseConfig("x = ", "job.toml").ok());
}

#endif  // LOCKSTEP_WITH_TOML

}  // namespace
}  // namespace lockstep
