#include "lockstep/base/config.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(Config, IsATableThatKeepsItsOrder) {
  Config config;
  EXPECT_EQ(config.ToString(), "{}");
  config.Set("size", 7);
  config.Set("name", "ring");
  config.Set("size", 8);
  EXPECT_EQ(config.ToString(), "{size = 8, name = \"ring\"}");
  ASSERT_NE(config.Find("size"), nullptr);
  EXPECT_EQ(*config.Find("size")->As<int64_t>(), 8);
  EXPECT_EQ(config.Find("size")->As<std::string>(), nullptr);
  EXPECT_EQ(config.Find("nothing"), nullptr);
  EXPECT_EQ(Config(7).Find("size"), nullptr);
}

TEST(Config, SetMakesATableOfAnythingElse) {
  Config config(7);
  config.Set("a", Config()).Set("b", true);
  EXPECT_EQ(config.ToString(), "{a = {b = true}}");
}

TEST(Config, PrintsAsTomlDoes) {
  const std::pair<Config, const char*> values[] = {
      {false, "false"},
      {-3, "-3"},
      {std::numeric_limits<int64_t>::min(), "-9223372036854775808"},
      {2.0, "2.0"},
      {0.1, "0.1"},
      {1e300, "1e+300"},
      {1.0 / 3, "0.3333333333333333"},
      {"a \"b\" \\ c", "\"a \\\"b\\\" \\\\ c\""},
      {"line\nbreak", "\"line\\u000abreak\""},
      {Config::Array(), "[]"},
      {Config::Array({1, "two", 3.5}), "[1, \"two\", 3.5]"},
  };
  for (const auto& [value, text] : values) EXPECT_EQ(value.ToString(), text);
  Config config;
  config.Set("a b", 1);
  config.Set("", 2);
  EXPECT_EQ(config.ToString(), "{\"a b\" = 1, \"\" = 2}");
}

TEST(Config, TakesAnythingThatStandsForAValue) {
  const char* const none = nullptr;
  EXPECT_EQ(Config(none).ToString(), "\"\"");
  EXPECT_EQ(Config(absl::string_view("text")).ToString(), "\"text\"");
  EXPECT_EQ(Config(uint8_t{7}).ToString(), "7");
  EXPECT_EQ(Config(size_t{7}).ToString(), "7");
  EXPECT_EQ(Config(std::numeric_limits<uint64_t>::max()).ToString(),
            "\"18446744073709551615\"");
  static_assert(!std::is_constructible_v<Config, int*>);
}

TEST(Config, ValuesStayWhereTheyAre) {
  Config config;
  Config& first = config.Set("first", Config());
  for (int i = 0; i < 100; ++i) config.Set(std::to_string(i), i);
  first.Set("x", 1);
  EXPECT_EQ(config.Find("first")->ToString(), "{x = 1}");
}

TEST(Config, CopiesAreApart) {
  Config config;
  config.Set("inner", Config()).Set("x", 1);
  config.set_location("job.toml:1:1");
  Config copy = config;
  copy.Set("inner", 2);
  EXPECT_EQ(config.ToString(), "{inner = {x = 1}}");
  EXPECT_EQ(copy.location(), "job.toml:1:1");
  config = std::move(copy);
  EXPECT_EQ(config.ToString(), "{inner = 2}");
  config.Set("inner", Config()).Set("x", Config()).Set("y", 3);
  config = *config.Find("inner");
  EXPECT_EQ(config.ToString(), "{x = {y = 3}}");
  config = std::move(config.Set("x", 4));
  EXPECT_EQ(config.ToString(), "4");
}

TEST(Config, ListsItsValuesByTheirKeys) {
  Config config;
  Config& train = config.Set("loader", Config()).Set("train", Config());
  train.Set("num_workers", 2);
  train.Set("sizes", Config::Array({1, 2}));
  train.Set("a.b", true);
  config.Set("metrics", Config()).Set("text", Config());
  EXPECT_THAT(
      config.Values(),
      testing::ElementsAre(testing::Pair("loader.train.\"a.b\"", "true"),
                           testing::Pair("loader.train.num_workers", "2"),
                           testing::Pair("loader.train.sizes", "[1, 2]"),
                           testing::Pair("metrics.text", "{}")));
  EXPECT_THAT(Config().Values(), testing::IsEmpty());
}

TEST(Config, IsAnEmptyTableUntilItHasAValue) {
  Config config;
  EXPECT_TRUE(config.IsEmptyTable());
  EXPECT_TRUE(Config(Config::Table()).IsEmptyTable());
  config.Set("size", 7);
  EXPECT_FALSE(config.IsEmptyTable());
  EXPECT_FALSE(Config("").IsEmptyTable());
  EXPECT_FALSE(Config(Config::Array()).IsEmptyTable());
}

TEST(Config, ShowsTheBeginningOfWhatIsLong) {
  EXPECT_EQ(Config(std::string(198, 'x')).Shown(),
            "\"" + std::string(198, 'x') + "\"");
  EXPECT_EQ(Config(std::string(199, 'x')).Shown(),
            "\"" + std::string(199, 'x') + "...");
}

}  // namespace
}  // namespace lockstep
