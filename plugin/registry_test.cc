#include "lockstep/plugin/registry.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>  // NOLINT: threads that use one registry
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/world.h"

namespace lockstep {

// A kind of part that the test defines.
struct Wheel {
  int64_t spokes = 0;
  int64_t rank = 0;
};

template <>
struct PluginKind<Wheel> {
  static constexpr char kName[] = "wheel";
  using Pointer = std::unique_ptr<Wheel>;
};

namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct WheelOptions {
  int64_t spokes = 3;
};

void BindOptions(WheelOptions& options, OptionTable& table) {
  table.Add("spokes", &options.spokes, "How many spokes the wheel has.");
}

absl::StatusOr<std::unique_ptr<Wheel>> MakeWheel(const PluginContext& context,
                                                 const WheelOptions& options) {
  if (options.spokes < 1) {
    return absl::InvalidArgumentError("spokes should be 1 or more");
  }
  return std::make_unique<Wheel>(Wheel{options.spokes, context.rank});
}

absl::StatusOr<std::unique_ptr<Wheel>> MakeNone(const PluginContext&,
                                                const NoOptions&) {
  return nullptr;
}

absl::StatusOr<std::unique_ptr<Wheel>> Throw(const PluginContext&,
                                             const NoOptions&) {
  throw std::runtime_error("no iron");
}

// Makes a wheel from another wheel that its registry makes by name.
absl::StatusOr<std::unique_ptr<Wheel>> MakeTwice(const PluginContext& context,
                                                 const WheelOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<Wheel> inner,
      context.registry->Create<Wheel>("plain", context, WriteOptions(options)));
  inner->spokes *= 2;
  return inner;
}

// Registers the same factory from the same place each time.
absl::Status AddPlain(PluginRegistry& registry) {
  return registry.Add<Wheel>("plain", "A wheel.", MakeWheel);
}

TEST(PluginRegistry, MakesPartsByName) {
  PluginRegistry registry;
  LOCKSTEP_ASSERT_OK(AddPlain(registry));
  LOCKSTEP_ASSERT_OK(
      registry.Add<Wheel>("double", "A wheel of twice as many.", MakeTwice));
  PluginContext context;
  context.rank = 5;
  const auto plain = registry.Create<Wheel>("plain", context);
  LOCKSTEP_ASSERT_OK(plain);
  EXPECT_EQ((*plain)->spokes, 3);
  EXPECT_EQ((*plain)->rank, 5);
  Config options;
  options.Set("spokes", 7);
  const auto twice = registry.Create<Wheel>("double", context, options);
  LOCKSTEP_ASSERT_OK(twice);
  EXPECT_EQ((*twice)->spokes, 14);
}

TEST(PluginRegistry, FactoriesFindTheRanks) {
  PluginRegistry registry;
  LOCKSTEP_ASSERT_OK(AddPlain(registry));
  EXPECT_EQ((*registry.Create<Wheel>("plain", {}))->rank, 0);
  WorldOptions options;
  options.init = "tcp://127.0.0.1:0";
  options.rank = 0;
  options.size = 1;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto world, World::Join(options));
  PluginContext context;
  context.world = world.get();
  EXPECT_EQ((*registry.Create<Wheel>("plain", context))->rank, 0);
  context.rank = 7;
  EXPECT_EQ((*registry.Create<Wheel>("plain", context))->rank, 7);
}

TEST(PluginRegistry, ListsItsParts) {
  PluginRegistry registry;
  EXPECT_THAT(registry.Parts<Wheel>(), IsEmpty());
  LOCKSTEP_ASSERT_OK(AddPlain(registry));
  LOCKSTEP_ASSERT_OK(registry.Add<Wheel>("a_null", "Nothing.", MakeNone));
  const std::vector<PluginPart> parts = registry.Parts<Wheel>();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].name, "a_null");
  EXPECT_EQ(parts[1].kind, "wheel");
  EXPECT_EQ(parts[1].meaning, "A wheel.");
  EXPECT_THAT(parts[1].options,
              ElementsAre(AllOf(Field(&OptionInfo::key, "spokes"),
                                Field(&OptionInfo::default_value, "3"))));
  EXPECT_EQ(registry.Parts().size(), 2u);
}

TEST(PluginRegistry, TheSamePlaceMayRegisterAgain) {
  PluginRegistry registry;
  LOCKSTEP_EXPECT_OK(AddPlain(registry));
  LOCKSTEP_EXPECT_OK(AddPlain(registry));
  EXPECT_THAT(registry.Add<Wheel>("plain", "Another wheel.", MakeWheel),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("wheel 'plain' was registered at "),
                             HasSubstr("plugin/registry_test.cc:"),
                             HasSubstr(", and again at "))));
}

// One place may register several factories, but only one for each name.
TEST(PluginRegistry, AnotherFactoryFromTheSamePlaceIsAnother) {
  PluginRegistry registry;
  const auto add = [&](absl::StatusOr<std::unique_ptr<Wheel>> (*factory)(
                       const PluginContext&, const WheelOptions&)) {
    return registry.Add<Wheel>("wheel", "A wheel.", factory);
  };
  LOCKSTEP_EXPECT_OK(add(MakeWheel));
  LOCKSTEP_EXPECT_OK(add(MakeWheel));
  EXPECT_THAT(add(MakeTwice), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST(PluginRegistry, ALambdaWillDo) {
  PluginRegistry registry;
  LOCKSTEP_ASSERT_OK((registry.Add<Wheel, WheelOptions>(
      "wheel", "A wheel.",
      [](const PluginContext&, const WheelOptions& options)
          -> absl::StatusOr<std::unique_ptr<Wheel>> {
        return std::make_unique<Wheel>(Wheel{options.spokes, 0});
      })));
  LOCKSTEP_EXPECT_OK(registry.Create<Wheel>("wheel", {}));
}

struct TwiceOptions {
  int64_t spokes = 3;
};

void BindOptions(TwiceOptions& options, OptionTable& table) {
  table.Add("spokes", &options.spokes, "How many there are.");
  table.Add("spokes", &options.spokes, "The same.");
}

struct NamedOptions {
  std::string name;
};

void BindOptions(NamedOptions& options, OptionTable& table) {
  table.Add("name", &options.name, "A name.");
}

struct ThrowingOptions {};

void BindOptions(ThrowingOptions&, OptionTable&) {
  throw std::runtime_error("no table");
}

template <typename Options>
absl::StatusOr<std::unique_ptr<Wheel>> MakeAny(const PluginContext&,
                                               const Options&) {
  return std::make_unique<Wheel>();
}

TEST(PluginRegistry, SettingsAreCheckedWhenTheyAreRegistered) {
  PluginRegistry registry;
  EXPECT_THAT(
      registry.Add<Wheel>("twice", "A wheel.", MakeAny<TwiceOptions>),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "BindOptions has the key 'spokes' twice; in wheel 'twice'"));
  EXPECT_THAT(registry.Add<Wheel>("named", "A wheel.", MakeAny<NamedOptions>),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has a setting 'name'")));
  EXPECT_THAT(
      registry.Add<Wheel>("throws", "A wheel.", MakeAny<ThrowingOptions>),
      StatusIs(absl::StatusCode::kUnknown, HasSubstr("no table")));
}

// A part that a factory has found stays valid when others are added.
TEST(PluginRegistry, PartsMayBeAddedAtAnyTime) {
  PluginRegistry registry;
  LOCKSTEP_ASSERT_OK((registry.Add<Wheel, NoOptions>(
      "adds", "A wheel that adds others.",
      [](const PluginContext& context,
         const NoOptions&) -> absl::StatusOr<std::unique_ptr<Wheel>> {
        for (int i = 0; i < 100; ++i) {
          LOCKSTEP_RETURN_IF_ERROR(context.registry->Add<Wheel>(
              absl::StrCat("later_", i), "A late wheel.", MakeWheel));
        }
        return std::make_unique<Wheel>();
      })));
  LOCKSTEP_EXPECT_OK(registry.Create<Wheel>("adds", {}));
  LOCKSTEP_EXPECT_OK(registry.Create<Wheel>("later_99", {}));
}

TEST(PluginRegistry, ThreadsMayRegisterAndMakeParts) {
  PluginRegistry registry;
  LOCKSTEP_ASSERT_OK(AddPlain(registry));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&registry, thread] {
      for (int i = 0; i < 50; ++i) {
        LOCKSTEP_EXPECT_OK(registry.Add<Wheel>(
            absl::StrCat("wheel_", thread, "_", i), "A wheel.", MakeWheel));
        LOCKSTEP_EXPECT_OK(registry.Create<Wheel>("plain", {}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(registry.Parts().size(), 201u);
}

TEST(PluginRegistry, UnknownNamesAreToldWithTheNearest) {
  PluginRegistry registry;
  EXPECT_THAT(registry.Create<Wheel>("plain", {}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("was RegisterLockstep called?")));
  LOCKSTEP_ASSERT_OK(AddPlain(registry));
  LOCKSTEP_ASSERT_OK(registry.Add<Wheel>("double", "Two.", MakeTwice));
  EXPECT_THAT(registry.Create<Wheel>("plian", {}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("there is no wheel 'plian'; did you mean "
                                 "'plain'? Known: double, plain")));
}

TEST(PluginRegistry, WhatIsWrongWithSettingsIsTold) {
  PluginRegistry registry;
  LOCKSTEP_ASSERT_OK(AddPlain(registry));
  Config options;
  options.Set("spoks", 2).set_location("job.toml:3:1");
  EXPECT_THAT(registry.Create<Wheel>("plain", {}, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "job.toml:3:1: wheel 'plain': there is no setting "
                       "'spoks'; did you mean 'spokes'? Known: spokes"));
  options = Config();
  options.Set("spokes", "two");
  EXPECT_THAT(
      registry.Create<Wheel>("plain", {}, options),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("wheel 'plain': spokes should be an integer, but got "
                         "spokes = \"two\"")));
  options.Set("spokes", 0);
  options.set_location("job.toml:7:2");
  EXPECT_THAT(registry.Create<Wheel>("plain", {}, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "spokes should be 1 or more; in wheel 'plain' at "
                       "job.toml:7:2"));
  EXPECT_THAT(registry.Create<Wheel>("plain", {}, Config(7)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("should be a table of settings, but is 7")));
}

// A wheel around another one, whose size Validate checks.
struct RimOptions {
  int64_t size = 1;
  Config wheel;
  std::vector<Config> spares;
};

void BindOptions(RimOptions& options, OptionTable& table) {
  table.Add("size", &options.size, "How large the rim is.");
  AddPart<Wheel>(table, "wheel", &options.wheel, "The wheel in it.");
  AddPart<Wheel>(table, "spares", &options.spares, "Other wheels.");
}

absl::Status Validate(const RimOptions& options) {
  if (options.size > 0) return absl::OkStatus();
  return absl::InvalidArgumentError("size should be 1 or more");
}

absl::StatusOr<std::unique_ptr<Wheel>> MakeRim(const PluginContext&,
                                               const RimOptions& options) {
  return std::make_unique<Wheel>(Wheel{options.size, 0});
}

Config Named(const std::string& name) {
  Config table;
  table.Set("name", name);
  return table;
}

// A part is checked with all parts in it, and none is made.
TEST(PluginRegistry, ChecksTablesOfParts) {
  PluginRegistry registry;
  LOCKSTEP_ASSERT_OK(
      registry.Add<Wheel>("rim", "A wheel in a wheel.", MakeRim));
  LOCKSTEP_ASSERT_OK(registry.Add<Wheel>("cart", "A wheel.", MakeWheel));
  LOCKSTEP_ASSERT_OK(registry.Add<Wheel>("thrown", "A wheel.", Throw));
  Config rim = Named("rim");
  EXPECT_THAT(registry.Check<Wheel>(rim), IsEmpty());
  rim.Set("wheel", Named("thrown"));
  EXPECT_THAT(registry.Check<Wheel>(rim), IsEmpty());
  // An empty table stands for no part.
  rim.Set("wheel", Config());
  EXPECT_THAT(registry.Check<Wheel>(rim), IsEmpty());

  Config wheel = Named("cart");
  wheel.Set("spoke", 3).set_location("a.toml:3:1");
  rim.Set("wheel", wheel);
  Config unknown = Named("crat");
  unknown.Find("name")->set_location("a.toml:4:1");
  rim.Set("spares", Config::Array{unknown, Config(3)});
  rim.Set("sizes", 1).set_location("a.toml:1:1");
  const std::vector<ConfigError> errors = registry.Check<Wheel>(rim);
  ASSERT_EQ(errors.size(), 4);
  EXPECT_EQ(errors[0].location, "a.toml:1:1");
  EXPECT_THAT(errors[0].message, HasSubstr("wheel 'rim': there is no setting"));
  EXPECT_EQ(errors[1].location, "a.toml:3:1");
  EXPECT_THAT(errors[1].message, HasSubstr("did you mean 'spokes'?"));
  EXPECT_EQ(errors[2].location, "a.toml:4:1");
  EXPECT_EQ(errors[2].code, absl::StatusCode::kNotFound);
  EXPECT_THAT(errors[2].message,
              HasSubstr("there is no wheel 'crat'; did you mean 'cart'?"));
  EXPECT_THAT(errors[3].message, HasSubstr("should be a table with its name"));
  EXPECT_THAT(registry.Check<Wheel>(Config(), "cart"), IsEmpty());
}

TEST(PluginRegistry, ValidatesOptionsBeforeAPartIsMade) {
  PluginRegistry registry;
  LOCKSTEP_ASSERT_OK(
      registry.Add<Wheel>("rim", "A wheel in a wheel.", MakeRim));
  Config rim = Named("rim");
  rim.Set("size", 0);
  rim.set_location("a.toml:1:1");
  const std::vector<ConfigError> errors = registry.Check<Wheel>(rim);
  ASSERT_EQ(errors.size(), 1);
  EXPECT_EQ(errors[0].location, "a.toml:1:1");
  EXPECT_EQ(errors[0].message, "size should be 1 or more; in wheel 'rim'");
  EXPECT_THAT(registry.CreateFrom<Wheel>(rim, PluginContext()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "size should be 1 or more; in wheel 'rim' at "
                       "a.toml:1:1"));
}

TEST(PluginRegistry, FactoriesMayThrowOrReturnNothing) {
  PluginRegistry registry;
  LOCKSTEP_ASSERT_OK(registry.Add<Wheel>("null", "Nothing.", MakeNone));
  LOCKSTEP_ASSERT_OK(registry.Add<Wheel>("throws", "Throws.", Throw));
  EXPECT_THAT(registry.Create<Wheel>("null", {}),
              StatusIs(absl::StatusCode::kInternal,
                       "the factory returned null; in wheel 'null'"));
  EXPECT_THAT(
      registry.Create<Wheel>("throws", {}),
      StatusIs(absl::StatusCode::kUnknown,
               AllOf(HasSubstr("wheel 'throws'"), HasSubstr("no iron"))));
}

TEST(PluginRegistry, NamesAreChecked) {
  PluginRegistry registry;
  for (const std::string& name :
       {std::string(), std::string("Plain"), std::string("a-b"),
        std::string("1st"), std::string("a b"), std::string("a\nb"),
        std::string(65, 'a')}) {
    EXPECT_THAT(
        registry.Add<Wheel>(name, "A wheel.", MakeWheel),
        StatusIs(
            absl::StatusCode::kInvalidArgument,
            AllOf(HasSubstr("the name of a part of kind wheel should begin "
                            "with a lower-case letter"),
                  Not(HasSubstr("\n")))));
  }
  LOCKSTEP_EXPECT_OK(
      registry.Add<Wheel>(std::string(64, 'a'), "A wheel.", MakeWheel));
  absl::StatusOr<std::unique_ptr<Wheel>> (*none)(const PluginContext&,
                                                 const NoOptions&) = nullptr;
  EXPECT_THAT(registry.Add<Wheel>("none", "No factory.", none),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("wheel 'none' has no factory")));
}

}  // namespace
}  // namespace lockstep
