// Tests what a build without images says to a job that has them. The tables are
// those that a text would give.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct NoFiles {};

void BindOptions(NoFiles&, OptionTable&) {}

absl::StatusOr<std::shared_ptr<Dataset>> MakeFiles(const PluginContext&,
                                                   const NoFiles&) {
  return TensorDataset::Create(
      {NamedTensor::Own<uint8_t>("image", {2}, std::vector<uint8_t>(2))});
}

class ImageMissingByName : public testing::Test {
 protected:
  ImageMissingByName() {
    LOCKSTEP_EXPECT_OK(RegisterLockstep(registry_));
    LOCKSTEP_EXPECT_OK(
        registry_.Add<Dataset>("files", "It has files.", MakeFiles));
    table_.Set("name", "image");
    table_.Set("height", 224);
    table_.Set("width", 224);
    Config inner;
    inner.Set("name", "files");
    table_.Set("dataset", inner);
  }

  absl::Status Make() {
    return registry_.CreateFrom<Dataset>(table_, PluginContext()).status();
  }

  PluginRegistry registry_;
  Config table_;
};

TEST_F(ImageMissingByName, TheErrorNamesTheFlag) {
  EXPECT_THAT(Make(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("dataset 'image'"),
                             HasSubstr("--@lockstep//config:with_images"))));
}

// Wrong settings are told in each build, so that a job can be checked in any.
TEST_F(ImageMissingByName, WrongNamesOfSettingsAreToldFirst) {
  table_.Set("hight", 224);
  EXPECT_THAT(Make(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("did you mean 'height'?")));
}

TEST_F(ImageMissingByName, ThePartIsListedWithItsSettings) {
  for (const PluginPart& part : registry_.Parts<Dataset>()) {
    if (part.name == "image") {
      EXPECT_EQ(part.options.size(), 18u);
      return;
    }
  }
  FAIL() << "there is no part 'image'";
}

}  // namespace
}  // namespace lockstep
