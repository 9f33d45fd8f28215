#include "lockstep/tools/cli/checkpoint_commands.h"

#include <cstring>
#include <filesystem>  // NOLINT: C++17's own
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

class CheckpointCommands : public testing::Test {
 protected:
  CheckpointCommands() : folder_(testing::TempDir() + "/checkpoint_commands") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~CheckpointCommands() override { std::filesystem::remove_all(folder_); }

  CheckpointCommand Command(const std::string& path, const std::string& to,
                            const std::string& format) const {
    CheckpointCommand command;
    command.path = path;
    command.to = to.empty() ? "" : folder_ + "/" + to;
    command.format = format;
    return command;
  }

  static absl::StatusOr<std::string> Shown(const std::string& path) {
    CheckpointCommand command;
    command.path = path;
    std::stringstream out;
    LOCKSTEP_RETURN_IF_ERROR(RunCheckpointShow(command, out));
    return out.str();
  }

  const std::string folder_;
  std::stringstream printed_;
};

TEST_F(CheckpointCommands, ShowSections) {
  EXPECT_THAT(
      Shown(kGolden),
      IsOkAndHolds(AllOf(StartsWith("step 5\n"), HasSubstr("\nstep: 8 bytes\n"),
                         HasSubstr("\nparameters/weight: f32, "))));
  EXPECT_THAT(Shown(folder_ + "/missing"),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(CheckpointCommands, ShowTheBestValue) {
  const std::string path = folder_ + "/best";
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto writer,
                                CheckpointWriter::Create(path));
  LOCKSTEP_ASSERT_OK(writer->Begin("best value", 1));
  const double value = 0.25;
  std::string bytes(16, '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  bytes[8] = 1;
  LOCKSTEP_ASSERT_OK(writer->Append(bytes));
  LOCKSTEP_ASSERT_OK(writer->Finish());
  EXPECT_THAT(Shown(path),
              IsOkAndHolds("no step\nthe best value is 0.25, the highest one\n"
                           "best value: 16 bytes\n"));
}

TEST_F(CheckpointCommands, ExportTellsWhatIsLeftOut) {
  const CheckpointCommand command = Command(kGolden, "a", "safetensors");
  LOCKSTEP_ASSERT_OK(RunCheckpointExport(command, printed_));
  EXPECT_EQ(printed_.str(),
            "not exported, because its name does not begin with "
            "'parameters/': momentum\n");
  CheckpointCommand all = Command(kGolden, "b", "safetensors");
  all.prefix = "";
  printed_.str("");
  LOCKSTEP_ASSERT_OK(RunCheckpointExport(all, printed_));
  EXPECT_EQ(printed_.str(), "");
}

TEST_F(CheckpointCommands, ExportAndImport) {
  const CheckpointCommand imported =
      Command("testdata/safetensors/plain.safetensors", "a", "safetensors");
  LOCKSTEP_ASSERT_OK(RunCheckpointImport(imported));
  EXPECT_THAT(
      Shown(imported.to),
      IsOkAndHolds(
          AllOf(StartsWith("no step\nparameters/u64: u64, 3 elements\n"),
                HasSubstr("\nparameters/m\\xc3\\xa9trica \\\"\\\\\\n\\x01"))));
  CheckpointCommand exported = Command(imported.to, "b", "npy");
  exported.prefix = "parameters/layer.";
  exported.shapes = {"0/weight=2,3"};
  LOCKSTEP_ASSERT_OK(RunCheckpointExport(exported, printed_));
  EXPECT_TRUE(std::filesystem::exists(exported.to + "/0%2Fweight.npy"));
  CheckpointCommand back = Command(exported.to, "c", "npy");
  back.prefix = "x.";
  LOCKSTEP_ASSERT_OK(RunCheckpointImport(back));
  EXPECT_THAT(Shown(back.to),
              IsOkAndHolds("no step\nx.0/weight: f32, 6 elements\n"));
  exported = Command(imported.to, "d", "safetensors");
  exported.shapes = {"number=", "empty=0,4", "layer.0/weight=2,3"};
  LOCKSTEP_ASSERT_OK(RunCheckpointExport(exported, printed_));
}

TEST_F(CheckpointCommands, SayWhatIsWrong) {
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
    CheckpointCommand command = Command(kGolden, c.to, c.format);
    command.shapes = c.shapes;
    EXPECT_THAT(
        RunCheckpointExport(command, printed_),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)));
    if (c.shapes.empty()) {
      EXPECT_THAT(
          RunCheckpointImport(command),
          StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)));
    }
  }
}

}  // namespace
}  // namespace lockstep
