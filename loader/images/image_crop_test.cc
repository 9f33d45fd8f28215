// These tests check that crops are those of torchvision, apart from the random
// numbers, and that they have the same bits everywhere.
#include "lockstep/loader/images/image_crop.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/loader/images/image_file.h"
#include "lockstep/loader/images/resize_weights.h"

namespace lockstep::internal_loader {
namespace {

using testing::ElementsAre;

constexpr Bounds kArea = {0.08, 1.0};
constexpr Bounds kAspect = {3.0 / 4.0, 4.0 / 3.0};

// The draws if none of ten tries fits.
constexpr uint64_t kDrawsOfTenTries = 20;

std::string ToString(const ImageRegion& part) {
  return absl::StrCat(part.left, ",", part.top, " ", part.width, "x",
                      part.height);
}

std::string Draw(const RandomCrop& crop, int64_t width, int64_t height,
                 uint64_t key) {
  Random random(key);
  return ToString(crop.Draw(width, height, random));
}

void ExpectInside(const ImageRegion& part, int64_t width, int64_t height) {
  EXPECT_GE(part.left, 0);
  EXPECT_GE(part.top, 0);
  EXPECT_GE(part.width, 1);
  EXPECT_GE(part.height, 1);
  EXPECT_LE(part.left + part.width, width);
  EXPECT_LE(part.top + part.height, height);
}

// The width and the height may be rounded by half a pixel.
void ExpectAspect(const ImageRegion& part, Bounds aspect) {
  const auto width = static_cast<double>(part.width);
  const auto height = static_cast<double>(part.height);
  EXPECT_GE((width + 0.5) / (height - 0.5), aspect.min);
  EXPECT_LE((width - 0.5) / (height + 0.5), aspect.max);
}

void ExpectArea(const ImageRegion& part, double pixels, Bounds area) {
  const auto width = static_cast<double>(part.width);
  const auto height = static_cast<double>(part.height);
  EXPECT_GE((width + 0.5) * (height + 0.5), area.min * pixels);
  EXPECT_LE((width - 0.5) * (height - 0.5), area.max * pixels);
}

Bounds RandomBounds(double low, double high, Random& random) {
  const double a = random.Uniform(low, high);
  const double b = random.Uniform(low, high);
  return {std::min(a, b), std::max(a, b)};
}

TEST(RandomCrop, IsInTheImageAndWithinTheBounds) {
  Random random(1);
  for (int i = 0; i < 5000; ++i) {
    const int64_t most = random.Below(4) == 0 ? 10 : 2000;
    const int64_t width = random.Integer(1, most);
    const int64_t height = random.Integer(1, most);
    const Bounds area = RandomBounds(0.01, 1, random);
    const Bounds aspect = RandomBounds(0.3, 3, random);
    Random draws(2, static_cast<uint64_t>(i));
    const ImageRegion part =
        RandomCrop(area, aspect).Draw(width, height, draws);
    ExpectInside(part, width, height);
    ExpectAspect(part, aspect);
    EXPECT_EQ(draws.draws() % 2, 0U);
    EXPECT_GE(draws.draws(), 4U);
    EXPECT_LE(draws.draws(), kDrawsOfTenTries + 2);
    if (draws.draws() != kDrawsOfTenTries) {
      ExpectArea(part, static_cast<double>(width * height), area);
    }
    ASSERT_FALSE(HasFailure()) << width << "x" << height << ToString(part);
  }
}

// The image is so large that rounding to pixels hides nothing.
TEST(RandomCrop, DrawsTheAreaTheAspectTheTopAndTheLeft) {
  constexpr int64_t kSize = int64_t{1} << 30;
  constexpr double kPixels = 0x1p60;
  const RandomCrop crop({0.1, 0.4}, {0.5, 2.0});
  for (uint64_t i = 0; i < 200; ++i) {
    Random random(3, i);
    Random same(3, i);
    const ImageRegion part = crop.Draw(kSize, kSize, random);
    const double area = kPixels * same.Uniform(0.1, 0.4);
    const double even = static_cast<double>(same()) * 0x1p-64;
    const double aspect = 0.5 * std::pow(4.0, even);
    EXPECT_NEAR(static_cast<double>(part.width), std::sqrt(area * aspect), 8.0);
    EXPECT_NEAR(static_cast<double>(part.height), std::sqrt(area / aspect),
                8.0);
    EXPECT_EQ(part.top, same.Integer(0, kSize - part.height + 1));
    EXPECT_EQ(part.left, same.Integer(0, kSize - part.width + 1));
    EXPECT_EQ(random.draws(), 4U);
    ASSERT_FALSE(HasFailure()) << i;
  }
}

TEST(RandomCrop, TheFirstTryThatFitsIsTaken) {
  const RandomCrop crop({0.5, 1.0}, {0.25, 4.0});
  std::vector<int> tries(11);
  for (uint64_t i = 0; i < 3000; ++i) {
    Random random(4, i);
    Random same(4, i);
    const ImageRegion part = crop.Draw(500, 500, random);
    bool fits = false;
    int wanted = 0;
    while (!fits && wanted < 10) {
      ++wanted;
      const double area = 250000 * same.Uniform(0.5, 1.0);
      const double aspect =
          0.25 * std::pow(16.0, static_cast<double>(same()) * 0x1p-64);
      fits = std::lround(std::sqrt(area * aspect)) <= 500 &&
             std::lround(std::sqrt(area / aspect)) <= 500;
    }
    if (fits) {
      EXPECT_EQ(part.top, same.Integer(0, 500 - part.height + 1));
      EXPECT_EQ(part.left, same.Integer(0, 500 - part.width + 1));
    } else {
      EXPECT_EQ(ToString(part), "0,0 500x500");
    }
    EXPECT_EQ(random.draws(), same.draws());
    ASSERT_FALSE(HasFailure()) << i;
    ++tries[static_cast<size_t>(fits ? wanted - 1 : 10)];
  }
  EXPECT_THAT(tries, testing::Each(testing::Gt(0)));
}

// torchvision's fallback: the middle, cut to the nearest aspect.
TEST(RandomCrop, ExtremeImagesGiveTheirMiddle) {
  const RandomCrop usual(kArea, kAspect);
  EXPECT_EQ(Draw(usual, 1, 1000, 5), "0,499 1x1");
  EXPECT_EQ(Draw(usual, 1000, 1, 5), "499,0 1x1");
  EXPECT_EQ(Draw(usual, 10, 1000, 5), "0,493 10x13");
  EXPECT_EQ(Draw(usual, 1000, 10, 5), "493,0 13x10");
  EXPECT_EQ(Draw(usual, 100, 5000, 5), "0,2433 100x133");
  EXPECT_EQ(Draw(usual, 5001, 100, 5), "2434,0 133x100");
  Random random(5);
  usual.Draw(1, 1000, random);
  EXPECT_EQ(random.draws(), kDrawsOfTenTries);
  // All of the area is too much for these aspects.
  EXPECT_EQ(Draw({{1, 1}, {1.2, 1.3}}, 100, 100, 5), "0,8 100x83");
  EXPECT_EQ(Draw({{1, 1}, {0.7, 0.8}}, 100, 100, 5), "10,0 80x100");
  // No try has the aspect of the image, which is within the bounds.
  EXPECT_EQ(Draw({{1, 1}, {0.01, 100}}, 1000, 1001, 5), "0,0 1000x1001");
}

TEST(RandomCrop, TheMiddleIsRoundedToEven) {
  EXPECT_EQ(Draw({{1, 1}, {0.5, 1.5}}, 100, 3, 5), "48,0 4x3");  // 4.5
  EXPECT_EQ(Draw({{1, 1}, {0.5, 1.5}}, 100, 5, 5), "46,0 8x5");  // 7.5
  EXPECT_EQ(Draw({{1, 1}, {0.4, 1.5}}, 1, 100, 5), "0,49 1x2");  // 2.5
  EXPECT_EQ(Draw({{1, 1}, {0.4, 1.5}}, 3, 100, 5), "0,46 3x8");  // 7.5
  // No part is empty, though 0.3 is nearer to 0.
  EXPECT_EQ(Draw({{1, 1}, {0.1, 0.3}}, 100, 1, 5), "49,0 1x1");
}

TEST(RandomCrop, EqualBoundsAreOneSize) {
  for (uint64_t i = 0; i < 20; ++i) {
    Random random(6, i);
    const ImageRegion part =
        RandomCrop({0.25, 0.25}, {1, 1}).Draw(200, 200, random);
    EXPECT_EQ(part.width, 100);
    EXPECT_EQ(part.height, 100);
    EXPECT_EQ(random.draws(), 3U);  // none for the area
    ExpectInside(part, 200, 200);
    Random all(6, i);
    EXPECT_EQ(ToString(RandomCrop({1, 1}, {2, 2}).Draw(40, 20, all)),
              "0,0 40x20");
  }
}

// Small images, for which every rectangle of the right size must come.
TEST(RandomCrop, ReachesAllPlaces) {
  std::vector<int> lefts(3);
  std::vector<int> tops(5);
  for (uint64_t i = 0; i < 200; ++i) {
    Random random(7, i);
    const ImageRegion part =
        RandomCrop({4.0 / 24.0, 4.0 / 24.0}, {1, 1}).Draw(4, 6, random);
    ++lefts[static_cast<size_t>(part.left)];
    ++tops[static_cast<size_t>(part.top)];
  }
  EXPECT_THAT(lefts, testing::Each(testing::Gt(20)));
  EXPECT_THAT(tops, testing::Each(testing::Gt(10)));
}

// The numbers are always the same, so a tolerance is for the chance that others
// would be drawn only: it is ten deviations of the mean.
TEST(RandomCrop, AreasAndLogarithmsOfAspectsAndPlacesAreEven) {
  constexpr int64_t kSize = 1000000;
  constexpr int kDraws = 10000;
  const RandomCrop crop({0.1, 0.5}, kAspect);
  double area = 0;
  double aspect = 0;
  double wide = 0;
  double left = 0;
  double top = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    Random random(8, i);
    const ImageRegion part = crop.Draw(kSize, kSize, random);
    const auto width = static_cast<double>(part.width);
    const auto height = static_cast<double>(part.height);
    area += width * height / kSize / kSize / kDraws;
    aspect += std::log(width / height) / kDraws;
    wide += (width > height ? 1.0 : 0.0) / kDraws;
    left += static_cast<double>(part.left) / (kSize - width) / kDraws;
    top += static_cast<double>(part.top) / (kSize - height) / kDraws;
  }
  EXPECT_NEAR(area, 0.3, 0.012);
  EXPECT_NEAR(aspect, 0.0, 0.017);
  EXPECT_NEAR(wide, 0.5, 0.05);
  EXPECT_NEAR(left, 0.5, 0.03);
  EXPECT_NEAR(top, 0.5, 0.03);
}

TEST(RandomCrop, GoldenDraws) {
  const RandomCrop crop(kArea, kAspect);
  std::vector<std::string> parts;
  for (uint64_t i = 0; i < 6; ++i) {
    Random random(RandomKey(42, 0, 0), i);
    parts.push_back(ToString(crop.Draw(640, 480, random)));
  }
  EXPECT_THAT(parts,
              ElementsAre("252,165 269x276", "205,1 182x149", "94,115 238x242",
                          "32,129 213x200", "129,0 507x476", "89,69 357x369"));
  Random random(9);
  EXPECT_EQ(ToString(crop.Draw(int64_t{1} << 30, int64_t{1} << 30, random)),
            "88165230,159779679 878036873x750401275");
}

std::string ToString(const ResizeAxis& axis) {
  return absl::StrCat(axis.in, " to ", axis.out, " from ", axis.first, " on ",
                      axis.count);
}

// torchvision: Resize makes the short side `resize` and the long one
// int(resize * long / short); CenterCrop begins at int(round(rest / 2.0)).
ResizeAxis ReferenceAxis(int64_t in, int64_t other, int64_t resize,
                         int64_t count) {
  ResizeAxis axis = {in, resize, 0, count};
  if (in > other) {
    axis.out = static_cast<int64_t>(static_cast<double>(resize * in) /
                                    static_cast<double>(other));
  }
  const auto rest = static_cast<double>(axis.out - count);
  axis.first = static_cast<int64_t>(std::nearbyint(rest / 2.0));
  return axis;
}

TEST(CropCenter, SizesAndPlacesAreThoseOfTorchvision) {
  Random random(10);
  for (int i = 0; i < 20000; ++i) {
    const int64_t width = random.Integer(1, 3000);
    const int64_t height =
        random.Below(10) == 0 ? width : random.Integer(1, 3000);
    const int64_t resize = random.Integer(1, 600);
    const int64_t x = random.Integer(1, resize + 1);
    const int64_t y = random.Integer(1, resize + 1);
    const CenterCrop crop = CropCenter(width, height, resize, x, y);
    ASSERT_EQ(ToString(crop.x),
              ToString(ReferenceAxis(width, height, resize, x)));
    ASSERT_EQ(ToString(crop.y),
              ToString(ReferenceAxis(height, width, resize, y)));
  }
}

TEST(CropCenter, AFewSizes) {
  const CenterCrop usual = CropCenter(500, 375, 256, 224, 224);
  EXPECT_EQ(ToString(usual.x), "500 to 341 from 58 on 224");  // 58.5
  EXPECT_EQ(ToString(usual.y), "375 to 256 from 16 on 224");
  const CenterCrop high = CropCenter(333, 500, 256, 224, 223);
  EXPECT_EQ(ToString(high.x), "333 to 256 from 16 on 224");
  EXPECT_EQ(ToString(high.y), "500 to 384 from 80 on 223");  // 80.5
  const CenterCrop odd = CropCenter(20, 20, 10, 7, 9);
  EXPECT_EQ(ToString(odd.x), "20 to 10 from 2 on 7");  // 1.5
  EXPECT_EQ(ToString(odd.y), "20 to 10 from 0 on 9");  // 0.5
  const CenterCrop thin = CropCenter(1, 3000, 8, 8, 8);
  EXPECT_EQ(ToString(thin.x), "1 to 8 from 0 on 8");
  EXPECT_EQ(ToString(thin.y), "3000 to 24000 from 11996 on 8");
}

}  // namespace
}  // namespace lockstep::internal_loader
