#include "lockstep/tools/cli/parts_command.h"

#include <fstream>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Printed(const PartsCommand& command) {
  std::stringstream out;
  LOCKSTEP_EXPECT_OK(RunParts(command, out));
  return out.str();
}

TEST(Parts, ListsAllOrSome) {
  EXPECT_THAT(Printed({}), AllOf(HasSubstr("\nsampler stratified\n"),
                                 HasSubstr("\norder stratified\n"),
                                 HasSubstr("\nmetrics sink text\n")));
  EXPECT_EQ(Printed({"order", "stratified"}),
            R"(order stratified
  A shuffle in which each batch has each class in proportion.
  seed = 0
      Tells one random order from another. All ranks have the same.
      Accepted: an integer from 0 on; from 9223372036854775808 to 18446744073709551615 as a string.
  labels = "label"
      The column of the dataset that has the class of each sample.
      Accepted: a string.
)");
  EXPECT_THAT(Printed({"loader", ""}),
              AllOf(StartsWith("loader default\n"),
                    HasSubstr("  num_workers (unset)\n"),
                    Not(HasSubstr("sampler stratified"))));
}

TEST(Parts, AreThoseOfTheDocument) {
  std::stringstream document;
  document << std::ifstream("docs/settings.md").rdbuf();
  EXPECT_EQ(Printed({"", "", "markdown"}), document.str())
      << "Write it anew: tools/bazel run //tools:lockstep -- parts "
         "--format=markdown >docs/settings.md";
}

TEST(Parts, SaysWhatThereIs) {
  const struct {
    PartsCommand command;
    const char* message;
  } cases[] = {
      {{"samplers", ""},
       "there is no --kind 'samplers'; did you mean 'sampler'? Known: "
       "collate, communicator, dataset, loader, metrics sink, order, sampler"},
      {{"dataset", "stratified"}, "there is no --name 'stratified'"},
      {{"", "distribute"}, "did you mean 'distributed'?"},
      {{"", "", "html"}, "there is no --format 'html'"},
  };
  for (const auto& each : cases) {
    std::stringstream out;
    EXPECT_THAT(
        RunParts(each.command, out),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(each.message)));
    EXPECT_EQ(out.str(), "");
  }
}

}  // namespace
}  // namespace lockstep
