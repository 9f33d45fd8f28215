#include "lockstep/tools/cli/parts_command.h"

#include <fstream>
#include <ostream>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Returns what the command prints for Lockstep's own parts.
std::string Parts(const PartsCommand& command) {
  PluginRegistry registry;
  LOCKSTEP_EXPECT_OK(RegisterLockstep(registry));
  CommandHost host;
  host.registry = &registry;
  return Printed(
      [&](std::ostream& out) { return RunParts(host, command, out); });
}

TEST(Parts, ListsAllOrSome) {
  EXPECT_THAT(Parts({}), AllOf(HasSubstr("\nsampler stratified\n"),
                               HasSubstr("\norder stratified\n"),
                               HasSubstr("\nmetrics sink text\n")));
  EXPECT_EQ(Parts({{}, "order", "stratified"}),
            R"(order stratified
  A shuffle in which each batch has each class in proportion.
  seed = 0
      Tells one random order from another. All ranks have the same.
      Accepted: an integer from 0 on; from 9223372036854775808 to 18446744073709551615 as a string.
  labels = "label"
      The column of the dataset that has the class of each sample.
      Accepted: a string.
)");
  EXPECT_THAT(Parts({{}, "loader", ""}),
              AllOf(StartsWith("loader default\n"),
                    HasSubstr("  num_workers (unset)\n"),
                    Not(HasSubstr("sampler stratified"))));
}

TEST(Parts, AreThoseOfTheDocument) {
  std::stringstream document;
  document << std::ifstream("docs/settings.md").rdbuf();
  EXPECT_EQ(Parts({{}, "", "", "markdown"}), document.str())
      << "Write it anew: tools/bazel run //tools:lockstep -- parts "
         "--format=markdown >docs/settings.md";
}

TEST(Parts, FindsWords) {
  EXPECT_EQ(Parts({{"similar", "LENGTH"}}),
            R"(order, sampler length_buckets
  Batches of samples of similar length.
    lengths: The column of the dataset that has the length of each sample.
--name=NAME prints all settings of one
)");
  // The tables of a job are no parts, but have settings, too.
  EXPECT_THAT(Parts({{"every_steps"}}),
              StartsWith("job\n  The tables of a job's text.\n    "
                         "checkpoint.every_steps: "));
  EXPECT_THAT(Parts({{"max_tokens"}, "order"}),
              StartsWith("order token_budget\n"));
}

TEST(Parts, OtherFormats) {
  EXPECT_THAT(Parts({{}, "order", "stratified", "csv"}),
              AllOf(StartsWith("kind,name,setting,default,accepted,meaning\n"
                               "order,stratified,,,,A shuffle in which"),
                    HasSubstr("\norder,stratified,labels,\"\"\"label\"\"\",")));
  EXPECT_THAT(Parts({{}, "order", "stratified", "json"}),
              StartsWith("[\n  {\"kind\": \"order\", \"name\": "));
}

TEST(Parts, HasThoseOfTheProgram) {
  TestHost host;
  WordsOptions options;
  const OptionTable table = TableOf(options);
  host.trainer = &table;
  PartsCommand command;
  command.words = {"words"};
  EXPECT_THAT(
      Printed([&](std::ostream& out) { return RunParts(host, command, out); }),
      StartsWith("dataset words\n  Numbers of words.\n"));
  command.words = {"number", "samples"};
  EXPECT_THAT(
      Printed([&](std::ostream& out) { return RunParts(host, command, out); }),
      HasSubstr("trainer\n  The trainer's own settings.\n    size: "));
}

TEST(Parts, SaysWhatThereIs) {
  const struct {
    PartsCommand command;
    const char* message;
  } cases[] = {
      {{{}, "samplers"},
       "there is no --kind 'samplers'; did you mean 'sampler'? Known: "
       "collate, communicator, dataset, loader, metrics sink, order, sampler"},
      {{{}, "dataset", "stratified"}, "there is no --name 'stratified'"},
      {{{}, "", "distribute"}, "did you mean 'distributed'?"},
      {{{}, "", "", "html"}, "there is no --format 'html'"},
  };
  for (const auto& each : cases) {
    const TestHost host;
    EXPECT_THAT(
        ErrorOf([&](std::ostream& out) {
          return RunParts(host, each.command, out);
        }),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(each.message)));
  }
  const TestHost host;
  PartsCommand command;
  command.words = {"no", "such", "word"};
  EXPECT_THAT(
      ErrorOf([&](std::ostream& out) { return RunParts(host, command, out); }),
      StatusIs(absl::StatusCode::kNotFound,
               HasSubstr("no part has the words 'no such word'")));
}

}  // namespace
}  // namespace lockstep
