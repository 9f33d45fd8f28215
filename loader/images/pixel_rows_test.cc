// These tests check that rows get the values and places of the field's type and
// layout.
#include "lockstep/loader/images/pixel_rows.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/loader/images/image_options.h"

namespace lockstep::internal_loader {
namespace {

ImageOptions Options(DType dtype, ImageLayout layout) {
  ImageOptions options;
  options.dtype = dtype;
  options.layout = layout;
  return options;
}

// The byte of a pixel is different from those of its neighbours.
uint8_t ByteAt(int64_t x, int64_t y, int64_t c) {
  return static_cast<uint8_t>(x * 3 + y * 50 + c * 71);
}

// Writes an image, with values of T behind it that must stay.
template <typename T>
std::vector<T> Write(PixelRows& rows, int64_t width, int64_t height) {
  constexpr size_t kBehind = 16;
  const auto size = static_cast<size_t>(width * height * 3);
  std::vector<T> all(size + kBehind, T{99});
  rows.Begin(width, height, reinterpret_cast<char*>(all.data()));
  for (int64_t y = 0; y < height; ++y) {
    uint8_t* const row = rows.Memory(y);
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < 3; ++c) row[x * 3 + c] = ByteAt(x, y, c);
    }
    rows.Done(y);
  }
  for (size_t i = size; i < all.size(); ++i) EXPECT_EQ(all[i], T{99});
  all.resize(size);
  return all;
}

// Expects value(byte, colour) at each place of the layout.
template <typename T, typename Value>
void ExpectPixels(const ImageOptions& options, const Value& value) {
  PixelRows rows(options);
  EXPECT_EQ(rows.is_plain(), options.dtype == DType::kU8 &&
                                 options.layout == ImageLayout::kChannelsLast);
  // The second image is smaller, and the third larger than the first.
  const int64_t sizes[][2] = {{7, 5}, {1, 3}, {16, 6}, {4, 1}};
  for (const auto& [width, height] : sizes) {
    const std::vector<T> got = Write<T>(rows, width, height);
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        for (int64_t c = 0; c < 3; ++c) {
          const int64_t at = options.layout == ImageLayout::kChannelsLast
                                 ? (y * width + x) * 3 + c
                                 : (c * height + y) * width + x;
          ASSERT_EQ(got[static_cast<size_t>(at)], value(ByteAt(x, y, c), c))
              << x << " " << y << " " << c;
        }
      }
    }
  }
}

constexpr ImageLayout kLayouts[] = {ImageLayout::kChannelsLast,
                                    ImageLayout::kChannelsFirst};

TEST(PixelRows, BytesStayAsTheyAre) {
  for (const ImageLayout layout : kLayouts) {
    ImageOptions options = Options(DType::kU8, layout);
    ExpectPixels<uint8_t>(options, [](uint8_t byte, int64_t) { return byte; });
  }
}

TEST(PixelRows, FloatsAreFrom0To1WithoutAMean) {
  for (const ImageLayout layout : kLayouts) {
    ExpectPixels<float>(Options(DType::kF32, layout),
                        [](uint8_t byte, int64_t) {
                          return static_cast<float>(byte) / 255.0F;
                        });
  }
}

TEST(PixelRows, FloatsHaveTheMeanAndTheDeviationOfTheirColour) {
  for (const ImageLayout layout : kLayouts) {
    ImageOptions options = Options(DType::kF32, layout);
    options.mean = {0.485, 0.456, 0.406};
    options.deviation = {0.229, 0.224, 0.225};
    // Each step is rounded to f32: first the mean, then the quotients.
    ExpectPixels<float>(options, [&options](uint8_t byte, int64_t c) {
      const auto i = static_cast<size_t>(c);
      const auto mean = static_cast<float>(options.mean[i]);
      const auto deviation = static_cast<float>(options.deviation[i]);
      volatile float value = static_cast<float>(byte) / 255.0F;
      value = value - mean;
      value = value / deviation;
      return value;
    });
  }
}

TEST(PixelRows, AMeanOrADeviationAloneCounts) {
  ImageOptions options = Options(DType::kF32, ImageLayout::kChannelsLast);
  options.mean = {0, 1, -1};
  ExpectPixels<float>(options, [](uint8_t byte, int64_t c) {
    return static_cast<float>(byte) / 255.0F - (c == 1 ? 1 : c == 2 ? -1 : 0);
  });
  options.mean.clear();
  options.deviation = {1, 0.5, 4};
  ExpectPixels<float>(options, [](uint8_t byte, int64_t c) {
    return static_cast<float>(byte) / 255.0F *
           (c == 1   ? 2
            : c == 2 ? 0.25F
                     : 1);
  });
}

// All values that the usual mean and deviation give. These are the bits of
// (pixel / 255 - mean) / deviation in f32.
TEST(PixelRows, GoldenFloats) {
  ImageOptions options = Options(DType::kF32, ImageLayout::kChannelsFirst);
  options.mean = {0.485, 0.456, 0.406};
  options.deviation = {0.229, 0.224, 0.225};
  PixelRows rows(options);
  std::vector<float> all(256 * 3);
  rows.Begin(256, 1, reinterpret_cast<char*>(all.data()));
  for (int i = 0; i < 256 * 3; ++i) {
    rows.Memory(0)[i] = static_cast<uint8_t>(i / 3);
  }
  rows.Done(0);
  std::string bytes(all.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), all.data(), bytes.size());
  EXPECT_EQ(DigestOf(bytes).ToString(), "46e15c798caef5702cc66d4931c90730");
}

TEST(PixelRows, APlainRowIsWrittenInPlace) {
  PixelRows rows(Options(DType::kU8, ImageLayout::kChannelsLast));
  std::vector<char> all(4 * 3 * 3);
  rows.Begin(4, 3, all.data());
  for (int64_t y = 0; y < 3; ++y) {
    EXPECT_EQ(rows.Memory(y),
              reinterpret_cast<uint8_t*>(all.data()) + y * 4 * 3);
  }
}

}  // namespace
}  // namespace lockstep::internal_loader
