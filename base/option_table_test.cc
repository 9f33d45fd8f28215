#include "lockstep/base/option_table.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

enum class Mode { kOrdered, kUnordered };

struct Options {
  bool pinned = false;
  int workers = 2;
  int64_t count = 5;
  uint64_t seed = 0;
  float rate = 0.1F;
  double scale = 0.5;
  std::string path = "/data";
  absl::Duration deadline = absl::Minutes(10);
  int64_t bytes = 1 << 20;
  Mode mode = Mode::kOrdered;
  std::optional<int64_t> limit;
  std::vector<std::string> files;
  std::vector<int64_t> sizes;
  Config inner;
};

void BindOptions(Options& options, OptionTable& table) {
  table.Add("pinned", &options.pinned, "Whether it is pinned.");
  table.Add("workers", &options.workers, "How many there are.");
  table.Add("count", &options.count, "A count.");
  table.Add("seed", &options.seed, "A seed.");
  table.Add("rate", &options.rate, "A rate.");
  table.Add("scale", &options.scale, "A scale.");
  table.Add("path", &options.path, "A path.");
  table.Add("deadline", &options.deadline, "A deadline.");
  table.AddSize("bytes", &options.bytes, "A size.");
  table.Add("mode", &options.mode, "A mode.",
            {{"ordered", Mode::kOrdered}, {"unordered", Mode::kUnordered}});
  table.Add("limit", &options.limit, "A limit.");
  table.Add("files", &options.files, "Files.");
  table.Add("sizes", &options.sizes, "Sizes.");
  table.Add("inner", &options.inner, "What is inside.");
}

constexpr char kDefaults[] =
    "{pinned = false, workers = 2, count = 5, seed = 0, rate = 0.1, scale = "
    "0.5, path = \"/data\", deadline = \"10m\", bytes = \"1m\", mode = "
    "\"ordered\", files = [], sizes = [], inner = {}}";

TEST(OptionTable, NothingIsTheDefaults) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Options options,
                                ReadOptions<Options>("it", Config()));
  EXPECT_EQ(WriteOptions(options).ToString(), kDefaults);
}

TEST(OptionTable, ReadsEveryKindOfField) {
  Config config;
  config.Set("pinned", true);
  config.Set("workers", -3);
  config.Set("count", std::numeric_limits<int64_t>::max());
  config.Set("seed", "18446744073709551615");
  config.Set("rate", 3);
  config.Set("scale", 1e-3);
  config.Set("path", "tcp://host:80");
  config.Set("deadline", "1m30s");
  config.Set("bytes", "64k");
  config.Set("mode", "unordered");
  config.Set("limit", 9);
  config.Set("files", Config::Array({"a", "b"}));
  config.Set("sizes", Config::Array({1, 2}));
  config.Set("inner", Config()).Set("x", 1);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Options options,
                                ReadOptions<Options>("it", config));
  EXPECT_TRUE(options.pinned);
  EXPECT_EQ(options.workers, -3);
  EXPECT_EQ(options.count, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(options.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(options.rate, 3);
  EXPECT_EQ(options.scale, 1e-3);
  EXPECT_EQ(options.path, "tcp://host:80");
  EXPECT_EQ(options.deadline, absl::Seconds(90));
  EXPECT_EQ(options.bytes, 65536);
  EXPECT_EQ(options.mode, Mode::kUnordered);
  EXPECT_EQ(options.limit, 9);
  EXPECT_THAT(options.files, ElementsAre("a", "b"));
  EXPECT_THAT(options.sizes, ElementsAre(1, 2));
  EXPECT_EQ(options.inner.ToString(), "{x = 1}");
}

TEST(OptionTable, ReadsBackWhatItWrites) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    Options options;
    options.pinned = random.Below(2) == 1;
    options.workers = static_cast<int>(random());
    options.count = static_cast<int64_t>(random());
    options.seed = random() >> random.Below(64);
    options.rate = static_cast<float>(random.Normal());
    options.scale = random.Normal();
    options.path = std::string(random.Below(4), static_cast<char>(random()));
    options.deadline =
        absl::Nanoseconds(static_cast<int64_t>(random() >> random.Below(64)));
    options.bytes =
        static_cast<int64_t>(random.Below(1000) << random.Below(50));
    options.mode = random.Below(2) == 1 ? Mode::kOrdered : Mode::kUnordered;
    if (random.Below(2) == 1) options.limit = static_cast<int64_t>(random());
    const Config written = WriteOptions(options);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Options again,
                                  ReadOptions<Options>("it", written));
    EXPECT_EQ(again.seed, options.seed);
    EXPECT_EQ(again.rate, options.rate);
    EXPECT_EQ(again.scale, options.scale);
    EXPECT_EQ(again.deadline, options.deadline);
    EXPECT_EQ(again.bytes, options.bytes);
    EXPECT_EQ(again.limit, options.limit);
    EXPECT_EQ(WriteOptions(again).ToString(), written.ToString());
  }
}

// A limit may be infinite by default, so a text may say so.
TEST(OptionTable, ReadsBackInfinity) {
  double limit = std::numeric_limits<double>::infinity();
  auto least = -std::numeric_limits<float>::infinity();
  double rate = 0.5;
  OptionTable table;
  table.Add("limit", &limit, "A value.");
  table.Add("least", &least, "A value.");
  table.Add("rate", &rate, "A value.");
  const Config written = table.Write();
  EXPECT_EQ(written.ToString(), "{limit = inf, least = -inf, rate = 0.5}");
  LOCKSTEP_EXPECT_OK(table.Read("it", written));
  Config config;
  config.Set("limit", "-inf");  // as on a command line
  LOCKSTEP_EXPECT_OK(table.Read("it", config));
  EXPECT_EQ(limit, -std::numeric_limits<double>::infinity());
  config.Set("limit", "soon");
  EXPECT_THAT(table.Read("it", config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a finite number, inf or -inf")));
  for (const double wrong : {std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    Config other;
    other.Set("rate", wrong);
    EXPECT_THAT(table.Read("it", other),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_EQ(rate, 0.5);
}

TEST(OptionTable, SaysWhatIsAccepted) {
  const struct {
    const char* key;
    Config value;
    const char* accepted;
  } cases[] = {
      {"pinned", "true",
       "pinned should be true or false, but got pinned = "
       "\"true\""},
      {"workers", 1.5, "an integer from -2147483648 to 2147483647"},
      {"workers", int64_t{1} << 31, "but got workers = 2147483648"},
      {"count", "7", "count should be an integer, but got count = \"7\""},
      {"seed", -1, "an integer from 0 on; from 9223372036854775808"},
      {"seed", "18446744073709551616", "18446744073709551615 as a string"},
      {"rate", 1e39, "a finite number that a 32-bit float can hold"},
      {"scale", std::numeric_limits<double>::infinity(), "a finite number"},
      {"scale", std::numeric_limits<double>::quiet_NaN(), "a finite number"},
      {"path", 7,
       "path should be a string, but got path = 7; in quotes it is one: "
       "\"7\""},
      {"deadline", 10, "a string with a time and its unit"},
      {"deadline", "10", "such as \"500ms\", \"1m30s\" or \"inf\""},
      {"bytes", "64", "a string with a unit of 1024"},
      {"bytes", "", "\"64k\", \"16m\" or \"2g\""},
      {"bytes", "k", "\"64k\", \"16m\" or \"2g\""},
      {"bytes", "-1k", "\"64k\", \"16m\" or \"2g\""},
      {"bytes", -1, "an integer from 0 on"},
      {"bytes", "8388608t", "but got bytes = \"8388608t\""},
      {"mode", "sorted", "one of \"ordered\", \"unordered\""},
      {"mode", 1, "one of \"ordered\", \"unordered\""},
      {"limit", "none", "limit should be an integer"},
      {"files", "a", "a list, each of which is a string"},
      {"files", Config::Array({"a", 1}), "but got files = [\"a\", 1]"},
  };
  for (const auto& [key, value, accepted] : cases) {
    Config config;
    config.Set(key, value);
    EXPECT_THAT(
        ReadOptions<Options>("it", config),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(accepted)));
  }
}

TEST(OptionTable, NamesTheLocationAndTheNearestKey) {
  Config config;
  config.Set("worker", 3).set_location("job.toml:7:3");
  EXPECT_THAT(ReadOptions<Options>("loader 'train'", config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("job.toml:7:3: loader 'train': there is no "
                                 "setting 'worker'; did you mean 'workers'? "
                                 "Known: pinned, workers, ")));
  EXPECT_THAT(ReadOptions<Options>("loader 'train'", Config("fast")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "loader 'train': should be a table of settings, but is "
                       "\"fast\""));
}

TEST(OptionTable, AHintSaysWhereAnUnknownSettingIs) {
  int64_t value = 0;
  OptionTable table;
  table.Add("sizes", &value, "A value.");
  table.AddHint("size", "set it in the table `sampler`");
  Config config;
  config.Set("size", 3).set_location("job.toml:7:3");
  EXPECT_THAT(table.Read("loader 'train'", config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "job.toml:7:3: loader 'train': there is no setting "
                       "'size': set it in the table `sampler`"));
}

TEST(OptionTable, SaysHowACommandLineStatesATextThatIsANumber) {
  Config config;
  config.Set("path", 7).set_location("--set data.path");
  EXPECT_THAT(ReadOptions<Options>("it", config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "--set data.path: it: path should be a string, but got "
                       "path = 7; write --set 'data.path=\"7\"'"));
}

TEST(OptionTable, SaysWhichKeyIsWrong) {
  int64_t value = 0;
  for (const char* const key : {"", "Size", "a b", "a-b"}) {
    OptionTable table;
    table.Add(key, &value, "A value.");
    EXPECT_THAT(table.status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("keys have lower-case")));
    EXPECT_EQ(table.Read("it", Config()), table.status());
  }
  OptionTable table;
  table.Add("size", &value, "A value.");
  LOCKSTEP_EXPECT_OK(table.status());
  table.Add("size", &value, "Again.");
  EXPECT_THAT(table.status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("the key 'size' twice")));
}

TEST(OptionTable, TakesIntegersOfAnyType) {
  uint16_t small = 0;
  uint32_t middle = 0;
  size_t large = 0;
  unsigned long long same = 0;  // NOLINT: it is another type than uint64_t
  long long least = 0;          // NOLINT: it is another type than int64_t
  OptionTable table;
  table.Add("small", &small, "A value.");
  table.Add("middle", &middle, "A value.");
  table.Add("large", &large, "A value.");
  table.Add("same", &same, "A value.");
  table.Add("least", &least, "A value.");
  Config config;
  config.Set("small", 65535);
  config.Set("middle", 4294967295);
  config.Set("large", "18446744073709551615");
  config.Set("same", "18446744073709551615");
  config.Set("least", std::numeric_limits<int64_t>::min());
  LOCKSTEP_ASSERT_OK(table.Read("it", config));
  EXPECT_EQ(table.Describe()[2].accepted, table.Describe()[3].accepted);
  Config negative;
  negative.Set("same", -1);
  EXPECT_THAT(table.Read("it", negative),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(table.Write().ToString(), config.ToString());
  config.Set("small", 65536);
  EXPECT_THAT(table.Read("it", config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("an integer from 0 to 65535")));
}

TEST(OptionTable, DescribesEverySetting) {
  const std::vector<OptionInfo> infos = DescribeOptions<Options>();
  ASSERT_EQ(infos.size(), 14u);
  EXPECT_EQ(infos[7].key, "deadline");
  EXPECT_THAT(infos[7].accepted, HasSubstr("a time and its unit"));
  EXPECT_EQ(infos[7].default_value, "\"10m\"");
  EXPECT_EQ(infos[7].meaning, "A deadline.");
  EXPECT_THAT(infos[10].default_value, IsEmpty());
}

struct Optimizer {
  double rate = 0.1;
  double momentum = 0;
};

void BindOptions(Optimizer& options, OptionTable& table) {
  table.Add("rate", &options.rate, "How far a step goes.");
  table.Add("momentum", &options.momentum, "How much of a step goes on.");
}

struct Trainer {
  Optimizer optimizer;
  std::map<std::string, int64_t> layers = {{"first", 8}};
  int64_t epochs = 2;

  Trainer() { optimizer.momentum = 0.9; }
};

void BindOptions(Trainer& options, OptionTable& table) {
  table.AddTable("optimizer", &options.optimizer, "How the model learns.");
  table.Add("layers", &options.layers, "The units of each layer.");
  table.Add("epochs", &options.epochs, "How often all samples come.");
}

TEST(OptionTable, HasTablesInIt) {
  Config config;
  config.Set("optimizer", Config()).Set("rate", 0.5);
  config.Set("layers", Config()).Set("second", 4);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Trainer trainer,
                                ReadOptions<Trainer>("trainer", config));
  EXPECT_EQ(trainer.optimizer.rate, 0.5);
  EXPECT_EQ(trainer.optimizer.momentum, 0.9);
  EXPECT_THAT(trainer.layers, ElementsAre(std::make_pair("second", 4)));
  EXPECT_EQ(WriteOptions(trainer).ToString(),
            "{optimizer = {rate = 0.5, momentum = 0.9}, layers = {second = 4}, "
            "epochs = 2}");
  const std::vector<OptionInfo> infos = DescribeOptions<Trainer>();
  ASSERT_EQ(infos.size(), 5u);
  EXPECT_EQ(infos[0].key, "optimizer");
  EXPECT_EQ(infos[0].meaning, "How the model learns.");
  EXPECT_EQ(infos[2].key, "optimizer.momentum");
  EXPECT_EQ(infos[2].default_value, "0.9");
}

TEST(OptionTable, SaysWhatIsWrongInTables) {
  const auto read = [](const char* key, const Config& value) {
    Config config;
    config.Set(key, value);
    return ReadOptions<Trainer>("trainer", config).status();
  };
  Config unknown;
  unknown.Set("ratee", 1).set_location("job.toml:3:1");
  EXPECT_THAT(read("optimizer", unknown),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("job.toml:3:1: trainer, optimizer: there is "
                                 "no setting 'ratee'; did you mean 'rate'?")));
  EXPECT_THAT(read("optimizer", "adam"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "trainer, optimizer: should be a table of settings, but "
                       "is \"adam\""));
  unknown = Config();
  unknown.Set("first", "wide");
  EXPECT_THAT(read("layers", unknown),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("layers should be a table, each value of "
                                 "which is an integer")));
}

// Lists of structs, each of which is a table.
struct Wheel {
  int spokes = 3;
};

void BindOptions(Wheel& wheel, OptionTable& table) {
  table.Add("spokes", &wheel.spokes, "How many spokes it has.");
}

struct Cart {
  std::vector<Wheel> wheels;
  Config load;
  Config loads;
};

void BindOptions(Cart& cart, OptionTable& table) {
  table.AddTables("wheels", &cart.wheels, "The wheels.");
  table.AddPartOfKind("load", "load", &cart.load, "What it carries.");
}

Config Wheels(const std::vector<Config>& spokes) {
  Config::Array tables;
  for (const Config& each : spokes) {
    Config table;
    table.Set("spokes", each);
    tables.push_back(std::move(table));
  }
  return Config(std::move(tables));
}

TEST(OptionTable, TakesListsOfTables) {
  Config config;
  config.Set("wheels", Wheels({4, 5}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Cart cart,
                                ReadOptions<Cart>("cart", config));
  ASSERT_EQ(cart.wheels.size(), 2);
  EXPECT_EQ(cart.wheels[0].spokes, 4);
  EXPECT_EQ(cart.wheels[1].spokes, 5);
  EXPECT_EQ(WriteOptions(cart).Find("wheels")->ToString(),
            "[{spokes = 4}, {spokes = 5}]");
  // A second list takes the place of the first one.
  Cart again = cart;
  config.Set("wheels", Wheels({6}));
  LOCKSTEP_ASSERT_OK(TableOf(again).Read("cart", config));
  EXPECT_EQ(again.wheels.size(), 1);

  config.Set("wheels", 3);
  EXPECT_THAT(ReadOptions<Cart>("cart", config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("cart: wheels should be a list")));
}

TEST(OptionTable, KnowsTheKindsOfParts) {
  const std::vector<OptionInfo> infos = DescribeOptions<Cart>();
  ASSERT_EQ(infos.size(), 2);
  EXPECT_EQ(infos[0].part_kind, "");
  EXPECT_EQ(infos[0].default_value, "[]");
  EXPECT_EQ(infos[1].part_kind, "load");
}

TEST(OptionTable, ReadAllGoesOnAfterAnError) {
  Config config;
  config.Set("wheel", 1).set_location("a.toml:1:1");
  config.Set("wheels", Wheels({"four", 5, "six"}));
  config.Set("load", Config());
  Cart cart;
  const std::vector<ConfigError> errors = TableOf(cart).ReadAll("cart", config);
  ASSERT_EQ(errors.size(), 3);
  EXPECT_EQ(errors[0].location, "a.toml:1:1");
  EXPECT_THAT(errors[0].message,
              HasSubstr("cart: there is no setting 'wheel'"));
  EXPECT_THAT(errors[1].message,
              HasSubstr("cart, wheels[0]: spokes should be an integer"));
  EXPECT_THAT(errors[2].message, HasSubstr("cart, wheels[2]: spokes"));
  // Read returns the first one.
  EXPECT_EQ(TableOf(cart).Read("cart", config), errors[0].ToStatus());
  EXPECT_THAT(errors[0].ToStatus(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a.toml:1:1: cart: there is no")));
}

TEST(ConfigError, SortedByLocation) {
  std::vector<ConfigError> errors = {{"--set a.b", "1"},   {"x.toml:10:2", "2"},
                                     {"x.toml:9:3", "3"},  {"", "4"},
                                     {"x.toml:9:20", "5"}, {"x.toml:9:3", "6"}};
  SortByLocation(errors);
  std::string order;
  for (const ConfigError& error : errors) order += error.message;
  EXPECT_EQ(order, "365214");
}

TEST(OptionTable, TakesMapsAndListsOfEachOther) {
  std::optional<std::map<std::string, std::vector<int64_t>>> lists;
  std::map<std::string, std::optional<int64_t>> maybe = {{"a", 1}, {"b", {}}};
  OptionTable table;
  table.Add("lists", &lists, "Lists by name.");
  table.Add("maybe", &maybe, "Numbers by name.");
  EXPECT_EQ(table.Write().ToString(), "{maybe = {a = 1}}");
  Config config;
  config.Set("lists", Config()).Set("x", Config::Array({1, 2}));
  LOCKSTEP_ASSERT_OK(table.Read("it", config));
  EXPECT_EQ(table.Write().ToString(),
            "{lists = {x = [1, 2]}, maybe = {a = 1}}");
}

}  // namespace
}  // namespace lockstep
