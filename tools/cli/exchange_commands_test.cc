#include "lockstep/tools/cli/exchange_commands.h"

#include <filesystem>  // NOLINT: C++17's own
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/checkpoint/checkpoint_file.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kGolden[] = "testdata/checkpoint/model.000000000005";

class ExchangeCommands : public testing::Test {
 protected:
  ExchangeCommands() : folder_(testing::TempDir() + "/exchange_commands") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~ExchangeCommands() override { std::filesystem::remove_all(folder_); }

  ExchangeCommand Command(const std::string& path, const std::string& to,
                          const std::string& format) const {
    ExchangeCommand command;
    command.path = path;
    command.to = to.empty() ? "" : folder_ + "/" + to;
    command.format = format;
    return command;
  }

  // Returns the names and the sizes of all sections.
  static absl::StatusOr<std::string> Shown(const std::string& path) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto reader, CheckpointReader::Open(path));
    std::string text;
    for (const CheckpointSection& section : reader->sections()) {
      absl::StrAppend(&text, absl::CHexEscape(section.name), ": ",
                      section.bytes, "\n");
    }
    return text;
  }

  const std::string folder_;
  std::stringstream printed_;
};

TEST_F(ExchangeCommands, ExportTellsWhatIsLeftOut) {
  const ExchangeCommand command = Command(kGolden, "a", "safetensors");
  LOCKSTEP_ASSERT_OK(RunStateExport(command, printed_));
  EXPECT_EQ(printed_.str(),
            "not exported, because its name does not begin with "
            "'parameters/': momentum\n");
  ExchangeCommand all = Command(kGolden, "b", "safetensors");
  all.prefix = "";
  printed_.str("");
  LOCKSTEP_ASSERT_OK(RunStateExport(all, printed_));
  EXPECT_EQ(printed_.str(), "");
}

TEST_F(ExchangeCommands, ExportAndImport) {
  const ExchangeCommand imported =
      Command("testdata/safetensors/plain.safetensors", "a", "safetensors");
  LOCKSTEP_ASSERT_OK(RunStateImport(imported));
  EXPECT_THAT(
      Shown(imported.to),
      IsOkAndHolds(
          AllOf(StartsWith("parameters/u64: 24\n"),
                HasSubstr("\nparameters/m\\xc3\\xa9trica \\\"\\\\\\n\\x01"))));
  ExchangeCommand exported = Command(imported.to, "b", "npy");
  exported.prefix = "parameters/layer.";
  exported.shapes = {"0/weight=2,3"};
  LOCKSTEP_ASSERT_OK(RunStateExport(exported, printed_));
  EXPECT_TRUE(std::filesystem::exists(exported.to + "/0%2Fweight.npy"));
  ExchangeCommand back = Command(exported.to, "c", "npy");
  back.prefix = "x.";
  LOCKSTEP_ASSERT_OK(RunStateImport(back));
  EXPECT_THAT(Shown(back.to), IsOkAndHolds("x.0/weight: 24\n"));
  exported = Command(imported.to, "d", "safetensors");
  exported.shapes = {"number=", "empty=0,4", "layer.0/weight=2,3"};
  LOCKSTEP_ASSERT_OK(RunStateExport(exported, printed_));
}

TEST_F(ExchangeCommands, SayWhatIsWrong) {
  const struct {
    std::string to, format;
    std::vector<std::string> shapes;
    const char* message;
  } cases[] = {
      {"", "npy", {}, "--to, the path of what is to be written, is not given"},
      {"a", "", {}, "--format is not given; it should be safetensors or npy"},
      {"a",
       "safetensor",
       {},
       "there is no --format 'safetensor'; did you mean"},
      {"a", "npy", {"weight"}, "but has no '=': 'weight'"},
      {"a", "npy", {"weight=4x4"}, "a dimension that is no whole number: "},
      {"a", "npy", {"weight=4,"}, "a dimension that is no whole number: "},
      {"a", "npy", {"x=1", "x=2"}, "but this name is given twice: 'x=2'"},
      {"a", "npy", {"wieght=1"}, "a shape (1) is given for 'wieght'"},
      {"a", "npy", {"a=b=1"}, "a shape (1) is given for 'a=b'"},
  };
  for (const auto& c : cases) {
    ExchangeCommand command = Command(kGolden, c.to, c.format);
    command.shapes = c.shapes;
    EXPECT_THAT(
        RunStateExport(command, printed_),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)));
    if (c.shapes.empty()) {
      EXPECT_THAT(
          RunStateImport(command),
          StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)));
    }
  }
}

}  // namespace
}  // namespace lockstep
