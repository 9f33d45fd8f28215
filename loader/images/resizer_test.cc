// These tests compare resized images with a reference, which sums up all pixels
// of a row or a column for each new one. They run for each version of the sums:
// resizer_plain_test has the one without AVX2.
#include "lockstep/loader/images/resizer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/random.h"
#include "lockstep/loader/images/image_file.h"
#include "lockstep/loader/images/image_options.h"
#include "lockstep/loader/images/resize_weights.h"

namespace lockstep::internal_loader {
namespace {

constexpr int64_t kGuard = 64;
constexpr uint8_t kGuardByte = 0xA5;

// An image of 3 bytes for each pixel.
struct Image {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<uint8_t> bytes;

  uint8_t& At(int64_t x, int64_t y, int64_t c) {
    return bytes[static_cast<size_t>((y * width + x) * 3 + c)];
  }
  uint8_t At(int64_t x, int64_t y, int64_t c) const {
    return bytes[static_cast<size_t>((y * width + x) * 3 + c)];
  }
};

Image Blank(int64_t width, int64_t height, uint8_t value = 0) {
  return {width, height,
          std::vector<uint8_t>(static_cast<size_t>(width * height * 3), value)};
}

Image Noise(int64_t width, int64_t height, Random& random) {
  Image image = Blank(width, height);
  for (uint8_t& byte : image.bytes) {
    byte = static_cast<uint8_t>(random.Below(256));
  }
  return image;
}

// Only the smallest and the largest bytes, whose sums go beyond a byte.
Image Extremes(int64_t width, int64_t height, Random& random) {
  Image image = Blank(width, height);
  for (uint8_t& byte : image.bytes) byte = random.Below(2) == 0 ? 0 : 255;
  return image;
}

double Kernel(ImageFilter filter, double distance) {
  const double x = std::fabs(distance);
  if (filter == ImageFilter::kBilinear) return x < 1 ? 1 - x : 0;
  if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
  if (x < 2) return -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2;
  return 0;
}

// Returns the weights of all old pixels for a new one, in units of 2^-22.
std::vector<int64_t> ReferenceWeights(const ResizeAxis& axis, int64_t wanted,
                                      ImageFilter filter) {
  const double scale =
      static_cast<double>(axis.in) / static_cast<double>(axis.out);
  const double center =
      (static_cast<double>(axis.first + wanted) + 0.5) * scale;
  std::vector<double> exact;
  double sum = 0;
  for (int64_t i = 0; i < axis.in; ++i) {
    const double distance = static_cast<double>(i) + 0.5 - center;
    exact.push_back(Kernel(filter, distance / std::max(scale, 1.0)));
    sum += exact.back();
  }
  std::vector<int64_t> weights;
  weights.reserve(exact.size());
  for (const double weight : exact) {
    weights.push_back(std::llround(weight / sum * (1 << 22)));
  }
  return weights;
}

uint8_t ByteOf(int64_t sum) {
  const double value = std::floor(static_cast<double>(sum) / (1 << 22) + 0.5);
  return static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
}

Image Transposed(const Image& image) {
  Image result = Blank(image.height, image.width);
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      for (int64_t c = 0; c < 3; ++c) result.At(y, x, c) = image.At(x, y, c);
    }
  }
  return result;
}

Image ResizedAcross(const Image& image, const ResizeAxis& axis,
                    ImageFilter filter) {
  Image result = Blank(axis.count, image.height);
  for (int64_t x = 0; x < axis.count; ++x) {
    const std::vector<int64_t> weights = ReferenceWeights(axis, x, filter);
    for (int64_t y = 0; y < image.height; ++y) {
      for (int64_t c = 0; c < 3; ++c) {
        int64_t sum = 0;
        for (int64_t i = 0; i < axis.in; ++i) {
          sum += weights[static_cast<size_t>(i)] * image.At(i, y, c);
        }
        result.At(x, y, c) = ByteOf(sum);
      }
    }
  }
  return result;
}

Image Mirrored(const Image& image) {
  Image result = image;
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        result.At(x, y, c) = image.At(image.width - 1 - x, y, c);
      }
    }
  }
  return result;
}

// A way to resize an image.
struct Case {
  ResizeAxis x;
  ResizeAxis y;
  ImageFilter filter = ImageFilter::kBilinear;
  bool mirror = false;

  std::string ToString() const {
    const auto axis = [](const ResizeAxis& axis) {
      return absl::StrCat(axis.in, " to ", axis.out, " from ", axis.first,
                          " on ", axis.count);
    };
    return absl::StrCat(axis(x), ", ", axis(y),
                        filter == ImageFilter::kBicubic ? ", bicubic" : "",
                        mirror ? ", mirrored" : "");
  }
};

Image Reference(const Case& wanted, const Image& image) {
  const Image across = ResizedAcross(image, wanted.x, wanted.filter);
  const Image down =
      Transposed(ResizedAcross(Transposed(across), wanted.y, wanted.filter));
  return wanted.mirror ? Mirrored(down) : down;
}

// Gives memory for one row at a time, and checks that nothing else is written.
class GuardedRows : public ResizedRows {
 public:
  GuardedRows(int64_t width, int64_t height) : image_(Blank(width, height)) {}

  uint8_t* Memory(int64_t row) override {
    EXPECT_EQ(row, next_);
    row_.assign(static_cast<size_t>(image_.width * 3 + 2 * kGuard), kGuardByte);
    return row_.data() + kGuard;
  }

  void Done(int64_t row) override {
    EXPECT_EQ(row, next_++);
    const auto begin = row_.begin() + kGuard;
    const auto end = row_.end() - kGuard;
    EXPECT_EQ(std::count(row_.begin(), begin, kGuardByte), kGuard);
    EXPECT_EQ(std::count(end, row_.end(), kGuardByte), kGuard);
    std::copy(begin, end, image_.bytes.begin() + row * image_.width * 3);
  }

  int64_t done() const { return next_; }
  const Image& image() const { return image_; }

 private:
  Image image_;
  int64_t next_ = 0;
  std::vector<uint8_t> row_;
};

// Gives the part of the image that is needed. Nothing else decides: neither the
// fourth byte of a pixel nor what is behind a row.
Image Resize(const Case& wanted, const Image& image, Resizer& resizer) {
  Random random(123);
  GuardedRows rows(wanted.x.count, wanted.y.count);
  resizer.Begin(wanted.x, wanted.y, wanted.filter, wanted.mirror, rows);
  const ImageRegion needed = resizer.needed();
  EXPECT_GE(needed.left, 0);
  EXPECT_GE(needed.top, 0);
  EXPECT_LE(needed.left + needed.width, image.width);
  EXPECT_LE(needed.top + needed.height, image.height);
  if (testing::Test::HasFailure()) return rows.image();
  for (int64_t y = 0; y < needed.height; ++y) {
    EXPECT_LT(rows.done(), wanted.y.count) << "a row more than needed";
    std::vector<uint8_t> row;
    for (int64_t x = 0; x < needed.width; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        row.push_back(image.At(needed.left + x, needed.top + y, c));
      }
      row.push_back(static_cast<uint8_t>(random()));
    }
    for (int64_t i = 0; i < RowSink::kBehind; ++i) {
      row.push_back(static_cast<uint8_t>(random()));
    }
    row.shrink_to_fit();
    resizer.Take(row.data());
  }
  EXPECT_EQ(rows.done(), wanted.y.count);
  return rows.image();
}

void ExpectAsReference(const Case& wanted, const Image& image) {
  Resizer resizer;
  const Image expected = Reference(wanted, image);
  const Image got = Resize(wanted, image, resizer);
  EXPECT_TRUE(got.bytes == expected.bytes) << wanted.ToString();
}

ResizeAxis All(int64_t in, int64_t out) { return {in, out, 0, out}; }

ResizeAxis RandomAxis(Random& random) {
  ResizeAxis axis;
  axis.in = random.Integer(1, random.Below(3) == 0 ? 6 : 60);
  axis.out = random.Integer(1, random.Below(3) == 0 ? 6 : 60);
  if (random.Below(6) == 0) axis.out = axis.in;
  axis.count = axis.out;
  if (random.Below(2) == 0) {
    axis.first = random.Integer(0, axis.out);
    axis.count = random.Integer(1, axis.out - axis.first + 1);
  }
  return axis;
}

Case RandomCase(Random& random) {
  Case wanted;
  wanted.x = RandomAxis(random);
  wanted.y = RandomAxis(random);
  wanted.filter =
      random.Below(2) == 0 ? ImageFilter::kBilinear : ImageFilter::kBicubic;
  wanted.mirror = random.Below(2) == 0;
  return wanted;
}

constexpr ImageFilter kFilters[] = {ImageFilter::kBilinear,
                                    ImageFilter::kBicubic};

TEST(Resizer, RandomSizesAndPartsAreAsInTheReference) {
  Random random(1);
  for (int i = 0; i < 150; ++i) {
    const Case wanted = RandomCase(random);
    ExpectAsReference(wanted, Noise(wanted.x.in, wanted.y.in, random));
    ExpectAsReference(wanted, Extremes(wanted.x.in, wanted.y.in, random));
    ASSERT_FALSE(HasFailure());
  }
}

TEST(Resizer, MemoryThatWasUsedForAnotherImageChangesNothing) {
  Random random(2);
  Resizer resizer;
  for (int i = 0; i < 50; ++i) {
    const Case wanted = RandomCase(random);
    const Image image = Noise(wanted.x.in, wanted.y.in, random);
    ASSERT_TRUE(Resize(wanted, image, resizer).bytes ==
                Reference(wanted, image).bytes)
        << wanted.ToString();
  }
}

TEST(Resizer, AnImageOfTheSameSizeIsCopied) {
  Random random(3);
  Resizer resizer;
  for (const ImageFilter filter : kFilters) {
    for (const int64_t width : {1, 2, 10, 11, 21, 32, 43}) {
      const Image image = Noise(width, 7, random);
      const Case wanted = {All(width, width), All(7, 7), filter, false};
      EXPECT_TRUE(Resize(wanted, image, resizer).bytes == image.bytes);
      Case mirrored = wanted;
      mirrored.mirror = true;
      EXPECT_TRUE(Resize(mirrored, image, resizer).bytes ==
                  Mirrored(image).bytes);
    }
  }
}

TEST(Resizer, OneAxisChangesAndTheOtherStays) {
  Random random(4);
  for (const ImageFilter filter : kFilters) {
    const Image image = Extremes(37, 23, random);
    for (const int64_t size : {1, 5, 22, 24, 36, 38, 90}) {
      ExpectAsReference({All(37, size), All(23, 23), filter, false}, image);
      ExpectAsReference({All(37, 37), All(23, size), filter, true}, image);
    }
  }
}

TEST(Resizer, OnePixelBecomesMany) {
  Random random(5);
  for (const ImageFilter filter : kFilters) {
    const Image image = Noise(1, 1, random);
    Resizer resizer;
    const Image got =
        Resize({All(1, 43), All(1, 9), filter, true}, image, resizer);
    for (size_t i = 0; i < got.bytes.size(); ++i) {
      ASSERT_EQ(got.bytes[i], image.bytes[i % 3]);
    }
  }
}

// Rows of all widths, which are written in blocks of 32 bytes and a rest.
TEST(Resizer, RowsOfAnyWidthAreWrittenAndNothingBehindThem) {
  Random random(6);
  const Image image = Noise(20, 20, random);
  for (int64_t width = 1; width <= 70; ++width) {
    ExpectAsReference(
        {All(20, width), All(20, 3), ImageFilter::kBicubic, width % 2 == 0},
        image);
  }
}

// The products of a weight with a high and a low part add up to more than 32
// bits in these, if small negative weights are many: their low parts are large.
TEST(Resizer, ThousandsOfPixelsBecomeAFew) {
  Random random(7);
  for (const ImageFilter filter : kFilters) {
    for (const auto& [in, out] :
         {std::pair<int64_t, int64_t>{5000, 3}, {4999, 1}, {20000, 5}}) {
      const Image wide = Extremes(in, 2, random);
      ExpectAsReference({All(in, out), All(2, 2), filter, false}, wide);
      ExpectAsReference({All(2, 2), All(in, out), filter, true},
                        Transposed(wide));
    }
  }
}

TEST(Resizer, WhiteStaysWhiteAndBlackStaysBlack) {
  for (const ImageFilter filter : kFilters) {
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{20000, 5},
                                  {5000, 3},
                                  {1, 30},
                                  {3, 70},
                                  {64, 64},
                                  {65, 64},
                                  {70, 69}}) {
      for (const uint8_t value : {0, 255}) {
        Resizer resizer;
        const Image wide = Resize({All(in, out), All(2, 3), filter, false},
                                  Blank(in, 2, value), resizer);
        EXPECT_TRUE(wide.bytes == Blank(out, 3, value).bytes);
        const Image high = Resize({All(2, 3), All(in, out), filter, false},
                                  Blank(2, in, value), resizer);
        EXPECT_TRUE(high.bytes == Blank(3, out, value).bytes);
      }
    }
  }
}

// Checks one dimension of what is needed. In units of half a new pixel times an
// old one, which are integers, the new pixel at `i` reaches `reach` to both
// sides of its middle. A pixel whose middle is exactly there has no weight, so
// it may be needed or not.
void ExpectNeeds(const ResizeAxis& axis, ImageFilter filter, int64_t begin,
                 int64_t size) {
  const int64_t reach =
      (filter == ImageFilter::kBicubic ? 4 : 2) * std::max(axis.in, axis.out);
  const auto distance = [&axis](int64_t old, int64_t wanted) {
    return (2 * old + 1) * axis.out - (2 * wanted + 1) * axis.in;
  };
  const int64_t end = begin + size;
  const int64_t last = axis.first + axis.count - 1;
  EXPECT_GE(distance(begin, axis.first), -reach);
  EXPECT_LE(distance(end - 1, last), reach);
  if (begin > 0) {
    EXPECT_LE(distance(begin - 1, axis.first), -reach);
  }
  if (end < axis.in) {
    EXPECT_GE(distance(end, last), reach);
  }
}

TEST(Resizer, NeedsThePixelsThatHaveAWeightAndNoOthers) {
  Random random(8);
  GuardedRows rows(1, 1);
  Resizer resizer;
  for (int i = 0; i < 2000; ++i) {
    const Case wanted = RandomCase(random);
    resizer.Begin(wanted.x, wanted.y, wanted.filter, wanted.mirror, rows);
    const ImageRegion needed = resizer.needed();
    ExpectNeeds(wanted.x, wanted.filter, needed.left, needed.width);
    ExpectNeeds(wanted.y, wanted.filter, needed.top, needed.height);
    ASSERT_FALSE(HasFailure()) << wanted.ToString();
  }
}

// The digest is the same for each version of the sums.
TEST(Resizer, GoldenImage) {
  Random random(9);
  Resizer resizer;
  std::string all;
  for (int i = 0; i < 20; ++i) {
    const Case wanted = RandomCase(random);
    const Image got =
        Resize(wanted, Extremes(wanted.x.in, wanted.y.in, random), resizer);
    all.append(got.bytes.begin(), got.bytes.end());
  }
  EXPECT_EQ(DigestOf(all).ToString(), "88d4e017e56d51dc62cbb47abce665b9");
}

}  // namespace
}  // namespace lockstep::internal_loader
