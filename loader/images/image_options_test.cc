// These tests check which options an ImageDataset takes, and the fields that it
// makes of them.
#include "lockstep/loader/images/image_options.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/images/image_dataset.h"
#include "lockstep/loader/images/image_dataset_testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Change = std::function<void(ImageOptions&)>;

absl::StatusOr<std::shared_ptr<ImageDataset>> Make(const Change& change) {
  ImageOptions options;
  options.height = 8;
  options.width = 6;
  change(options);
  return ImageDataset::Create(
      std::make_shared<ImagesInMemory>(std::vector<std::string>{GoodJpeg()}),
      std::move(options));
}

FieldSpec PixelsOf(const Change& change) {
  const auto dataset = Make(change);
  LOCKSTEP_EXPECT_OK(dataset);
  return dataset.ok() ? (*dataset)->fields()[1] : FieldSpec();
}

// ---- Fields.

TEST(ImageFields, TheImageIsReplacedInItsPlace) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, Make([](ImageOptions&) {}));
  EXPECT_THAT(dataset->fields(),
              ElementsAre(FieldSpec{"id", DType::kI64, {}},
                          FieldSpec{"image", DType::kU8, {8, 6, 3}},
                          FieldSpec{"letters", DType::kU8, {-1}, 2},
                          FieldSpec{"box", DType::kF32, {2, 2}}));
}

TEST(ImageFields, HaveTheTypeAndTheLayout) {
  EXPECT_EQ(PixelsOf([](ImageOptions& o) { o.dtype = DType::kF32; }),
            (FieldSpec{"image", DType::kF32, {8, 6, 3}}));
  EXPECT_EQ(
      PixelsOf([](ImageOptions& o) { o.layout = ImageLayout::kChannelsFirst; }),
      (FieldSpec{"image", DType::kU8, {3, 8, 6}}));
  EXPECT_EQ(PixelsOf([](ImageOptions& o) {
              o.dtype = DType::kF32;
              o.layout = ImageLayout::kChannelsFirst;
            }),
            (FieldSpec{"image", DType::kF32, {3, 8, 6}}));
}

TEST(ImageFields, AreRaggedIfImagesKeepTheirSizes) {
  const auto keep = [](ImageOptions& o) {
    o.height = o.width = 0;
    o.max_pixels = 5000;
  };
  EXPECT_EQ(PixelsOf(keep),
            (FieldSpec{"image", DType::kU8, {-1, -1, 3}, 15000}));
  EXPECT_EQ(PixelsOf([&](ImageOptions& o) {
              keep(o);
              o.dtype = DType::kF32;
              o.layout = ImageLayout::kChannelsFirst;
            }),
            (FieldSpec{"image", DType::kF32, {3, -1, -1}, 15000}));
}

TEST(ImageFields, MayHaveAnyName) {
  ImageOptions options;
  options.height = options.width = 4;
  options.field = "letters";
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto dataset,
      ImageDataset::Create(std::make_shared<ImagesInMemory>(
                               std::vector<std::string>{GoodJpeg()}),
                           options));
  EXPECT_EQ(dataset->fields()[2],
            (FieldSpec{"letters", DType::kU8, {4, 4, 3}}));
  EXPECT_EQ(dataset->fields()[1].shape, std::vector<int64_t>{-1});
}

// ---- Options that are right.

TEST(ImageOptions, AreAcceptedAtTheirBounds) {
  const Change changes[] = {
      [](ImageOptions& o) { o.height = o.width = 1; },
      [](ImageOptions& o) { o.height = o.width = 65535; },
      [](ImageOptions& o) { o.height = 1, o.width = 65535; },
      [](ImageOptions& o) { o.crop = ImageCrop::kCenter; },
      [](ImageOptions& o) { o.crop = ImageCrop::kCenter, o.resize = 8; },
      [](ImageOptions& o) { o.crop = ImageCrop::kCenter, o.resize = 65535; },
      [](ImageOptions& o) {
        o.crop = ImageCrop::kRandom;
        o.min_area = o.max_area = 1;
        o.min_aspect = o.max_aspect = 1000;
      },
      [](ImageOptions& o) {
        o.crop = ImageCrop::kRandom;
        o.min_area = 1e-9;
        o.min_aspect = o.max_aspect = 0.001;
      },
      [](ImageOptions& o) { o.max_pixels = 1; },
      [](ImageOptions& o) { o.height = o.width = 0, o.max_pixels = 1; },
      [](ImageOptions& o) {
        o.dtype = DType::kF32;
        o.mean = {0, -1, 1};
        o.deviation = {1e-37, 1, 3e38};
      },
      [](ImageOptions& o) {
        o.dtype = DType::kF32, o.mean = {0.1, 0.2, 0.3};
      },
      [](ImageOptions& o) {
        o.dtype = DType::kF32, o.deviation = {1, 2, 3};
      },
  };
  for (const Change& change : changes) LOCKSTEP_EXPECT_OK(Make(change));
}

// ---- Options that are wrong.

struct WrongOptions {
  Change change;
  std::string words;
};

void ExpectWrong(const std::vector<WrongOptions>& all) {
  for (const WrongOptions& wrong : all) {
    EXPECT_THAT(Make(wrong.change),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(StartsWith("image: "), HasSubstr(wrong.words))));
  }
}

TEST(ImageOptions, OfWrongSizesAreRefused) {
  const std::string sizes =
      "height and width should both be from 1 to 65535, or both be 0 if images "
      "keep their sizes, but got ";
  ExpectWrong({
      {[](ImageOptions& o) { o.height = 0; }, sizes + "height=0, width=6"},
      {[](ImageOptions& o) { o.width = 0; }, sizes + "height=8, width=0"},
      {[](ImageOptions& o) { o.height = -1; }, sizes + "height=-1, width=6"},
      {[](ImageOptions& o) { o.height = o.width = -1; },
       sizes + "height=-1, width=-1"},
      {[](ImageOptions& o) { o.width = 65536; },
       sizes + "height=8, width=65536"},
      {[](ImageOptions& o) { o.height = INT64_MAX; },
       sizes + "height=9223372036854775807, width=6"},
      {[](ImageOptions& o) {
         o.height = o.width = 0;
         o.crop = ImageCrop::kCenter;
       },
       "height and width should be given"},
      {[](ImageOptions& o) {
         o.height = o.width = 0;
         o.crop = ImageCrop::kRandom;
         o.max_pixels = 100;
       },
       "only with crop=none can images keep their sizes"},
  });
}

TEST(ImageOptions, WithAWrongMostOfPixelsAreRefused) {
  const std::string given =
      "max_pixels should be given if images keep their sizes";
  const std::string range =
      "max_pixels should be from 1 to 1099511627776, or 0 for the default, but "
      "got ";
  ExpectWrong({
      {[](ImageOptions& o) { o.height = o.width = 0; }, given},
      {[](ImageOptions& o) { o.max_pixels = -1; }, range + "-1"},
      {[](ImageOptions& o) { o.height = o.width = 0, o.max_pixels = -5; },
       range + "-5"},
      {[](ImageOptions& o) { o.max_pixels = INT64_MAX; },
       range + "9223372036854775807"},
      {[](ImageOptions& o) {
         o.height = o.width = 0;
         o.max_pixels = INT64_MAX / 3 + 1;
       },
       range},
  });
}

TEST(ImageOptions, ResizeOnlyForTheMiddle) {
  ExpectWrong({
      {[](ImageOptions& o) { o.resize = 8; },
       "resize=8 is only for crop=center; leave it out"},
      {[](ImageOptions& o) { o.crop = ImageCrop::kRandom, o.resize = -8; },
       "resize=-8 is only for crop=center; leave it out"},
      {[](ImageOptions& o) { o.height = o.width = 0, o.resize = 9; },
       "max_pixels"},
      {[](ImageOptions& o) {
         o.height = o.width = 0;
         o.max_pixels = 9;
         o.resize = 9;
       },
       "resize=9 is only for crop=center; leave it out"},
      {[](ImageOptions& o) { o.crop = ImageCrop::kCenter, o.resize = 7; },
       "resize should be from 8, the larger one of height and width, to 65535, "
       "but got 7"},
      {[](ImageOptions& o) { o.crop = ImageCrop::kCenter, o.resize = -1; },
       "but got -1"},
      {[](ImageOptions& o) { o.crop = ImageCrop::kCenter, o.resize = 65536; },
       "but got 65536"},
  });
}

TEST(ImageOptions, OfWrongBoundsAreRefused) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::string area =
      "min_area and max_area should be above 0, at most 1, and in this order, "
      "but got ";
  const std::string aspect =
      "min_aspect and max_aspect should be from 0.001 to 1000, and in this "
      "order, but got ";
  ExpectWrong({
      {[](ImageOptions& o) { o.min_area = 0; },
       area + "min_area=0, max_area=1"},
      {[](ImageOptions& o) { o.min_area = -1; },
       area + "min_area=-1, max_area=1"},
      {[](ImageOptions& o) { o.max_area = 1.5; },
       area + "min_area=0.08, max_area=1.5"},
      {[](ImageOptions& o) { o.min_area = 0.6, o.max_area = 0.5; },
       area + "min_area=0.6, max_area=0.5"},
      {[](ImageOptions& o) { o.min_area = kNan; }, area},
      {[](ImageOptions& o) { o.max_area = kNan; }, area},
      {[](ImageOptions& o) { o.min_aspect = 0; },
       aspect + "min_aspect=0, max_aspect=1.33333"},
      {[](ImageOptions& o) { o.min_aspect = 1e-300; },
       aspect + "min_aspect=1e-300"},
      {[](ImageOptions& o) { o.min_aspect = 0.0009; },
       aspect + "min_aspect=0.0009"},
      {[](ImageOptions& o) { o.max_aspect = 1001; },
       aspect + "min_aspect=0.75, max_aspect=1001"},
      {[](ImageOptions& o) { o.max_aspect = 0.7; },
       aspect + "min_aspect=0.75, max_aspect=0.7"},
      {[](ImageOptions& o) { o.max_aspect = kNan; }, aspect},
      {[](ImageOptions& o) { o.max_aspect = INFINITY; },
       aspect + "min_aspect=0.75, max_aspect=inf"},
  });
}

TEST(ImageOptions, OfRandomRectanglesAreRefusedWithoutThem) {
  const std::string message =
      "min_area, max_area, min_aspect and max_aspect are only for crop=random; "
      "leave them out, or set crop";
  ExpectWrong({
      {[](ImageOptions& o) { o.min_area = 0.5; }, message},
      {[](ImageOptions& o) { o.max_area = 0.5; }, message},
      {[](ImageOptions& o) { o.min_aspect = 0.5; }, message},
      {[](ImageOptions& o) { o.max_aspect = 2; }, message},
      {[](ImageOptions& o) { o.crop = ImageCrop::kCenter, o.max_area = 0.5; },
       message},
  });
}

TEST(ImageOptions, OfAWrongTypeAreRefused) {
  ExpectWrong({
      {[](ImageOptions& o) { o.dtype = DType::kI64; },
       "dtype should be u8 or f32, but got i64"},
      {[](ImageOptions& o) { o.dtype = DType::kF16; }, "but got f16"},
      {[](ImageOptions& o) {
         o.mean = {0, 0, 0};
       },
       "mean is only for dtype=f32; leave it out, or set dtype"},
      {[](ImageOptions& o) {
         o.deviation = {1, 1, 1};
       },
       "deviation is only for dtype=f32; leave it out, or set dtype"},
  });
}

TEST(ImageOptions, WithAWrongNormalizationAreRefused) {
  const auto normalize = [](const std::vector<double>& mean,
                            const std::vector<double>& deviation) -> Change {
    return [mean, deviation](ImageOptions& o) {
      o.dtype = DType::kF32;
      o.mean = mean;
      o.deviation = deviation;
    };
  };
  const std::string mean =
      "mean should have numbers from -1 to 1, since pixels are from 0 to 1 "
      "before it is subtracted, but has ";
  const std::string deviation =
      "deviation should have numbers above 0 that are finite as f32, but has ";
  ExpectWrong({
      {normalize({0.5}, {}),
       "mean should have 3 values, for red, green and blue, but has 1"},
      {normalize({}, {1, 1, 1, 1}),
       "deviation should have 3 values, for red, green and blue, but has 4"},
      {normalize({0, NAN, 0}, {}), mean + "nan"},
      {normalize({0, 0, -INFINITY}, {}), mean + "-inf"},
      {normalize({123.675, 116.28, 103.53}, {}), mean + "123.675"},
      {normalize({1e39, 0, 0}, {}), mean + "1e+39"},
      {normalize({0, 0, 0}, {1, 0, 1}), deviation + "0"},
      {normalize({}, {1, 1, -1}), deviation + "-1"},
      {normalize({}, {1, 1, NAN}), deviation + "nan"},
      {normalize({}, {1, 1, INFINITY}), deviation + "inf"},
      {normalize({}, {1e39, 1, 1}), deviation + "1e+39"},
      // It is 0 as f32.
      {normalize({}, {1, 1e-60, 1}), deviation + "1e-60"},
  });
}

// ---- Inner datasets that do not fit.

TEST(ImageOptions, TheInnerDatasetMustHaveTheFilesInItsField) {
  EXPECT_THAT(
      ImageDataset::Create(nullptr, ImageOptions()),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("image: the inner dataset is a null pointer")));
  EXPECT_THAT(
      Make([](ImageOptions& o) { o.field = "picture"; }),
      StatusIs(absl::StatusCode::kNotFound,
               HasSubstr("image: there is no field 'picture'; the fields are "
                         "id, image, letters, box")));
  EXPECT_THAT(
      Make([](ImageOptions& o) { o.field = ""; }),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("there is no field ''")));
  ExpectWrong({
      {[](ImageOptions& o) { o.field = "id"; },
       "the field should have the bytes of files, u8[-1], but is id i64[]"},
      {[](ImageOptions& o) { o.field = "box"; }, "but is box f32[2,2]"},
  });
  const std::shared_ptr<Dataset> pixels = *TensorDataset::Create(
      {NamedTensor::Own<uint8_t>("image", {2, 5}, std::vector<uint8_t>(10))});
  ImageOptions options;
  options.height = options.width = 8;
  EXPECT_THAT(ImageDataset::Create(pixels, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("but is image u8[5]")));
}

// The images of images would be no files.
TEST(ImageOptions, AnImageDatasetOfTheSameFieldIsRefused) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto once, Make([](ImageOptions&) {}));
  ImageOptions options;
  options.height = options.width = 8;
  EXPECT_THAT(ImageDataset::Create(once, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("but is image u8[8,6,3]")));
}

}  // namespace
}  // namespace lockstep
