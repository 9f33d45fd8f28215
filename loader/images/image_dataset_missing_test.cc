// This test runs in builds without images.
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/images/image_dataset.h"
#include "lockstep/loader/images/image_options.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

auto NamesTheFlag() {
  return StatusIs(absl::StatusCode::kUnimplemented,
                  HasSubstr("--@lockstep//config:with_images"));
}

TEST(ImageDatasetMissing, CreateNamesTheFlag) {
  const std::shared_ptr<Dataset> dataset = *TensorDataset::Create(
      {NamedTensor::Own<uint8_t>("image", {2}, std::vector<uint8_t>(2))});
  ImageOptions options;
  options.height = options.width = 224;
  EXPECT_THAT(ImageDataset::Create(dataset, options), NamesTheFlag());
  EXPECT_THAT(ImageDataset::Create(nullptr, ImageOptions()), NamesTheFlag());
}

}  // namespace
}  // namespace lockstep
