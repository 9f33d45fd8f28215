// These tests check that a part of a JPEG has the pixels that the whole image
// has there, for all ways to store it, and that broken files are errors.
#include "lockstep/loader/images/jpeg_file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/images/image_file.h"
#include "lockstep/loader/images/jpeg_testing.h"

namespace lockstep::internal_loader {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMaxPixels = 1 << 24;

// Keeps red, green and blue of all rows.
class Kept : public RowSink {
 public:
  explicit Kept(int64_t width) : width_(width) {}

  void Take(const uint8_t* row) override {
    // The bytes behind the row may be read.
    unsigned sum = 0;
    for (int64_t i = 0; i < kBehind; ++i) sum += row[width_ * kPixelBytes + i];
    sum_ += sum;
    for (int64_t x = 0; x < width_; ++x) {
      pixels.insert(pixels.end(), row + x * kPixelBytes,
                    row + x * kPixelBytes + 3);
    }
  }

  std::vector<uint8_t> pixels;

 private:
  const int64_t width_;
  unsigned sum_ = 0;
};

int64_t Scaled(int64_t size, int divisor) {
  return (size + divisor - 1) / divisor;
}

absl::StatusOr<std::vector<uint8_t>> ReadAll(JpegFile& file,
                                             const std::string& bytes,
                                             int divisor) {
  LOCKSTEP_RETURN_IF_ERROR(
      file.Open(absl::MakeConstSpan(bytes.data(), bytes.size()), kMaxPixels));
  std::vector<uint8_t> pixels(static_cast<size_t>(
      Scaled(file.width(), divisor) * Scaled(file.height(), divisor) * 3));
  LOCKSTEP_RETURN_IF_ERROR(file.ReadAll(divisor, pixels.data()));
  return pixels;
}

absl::StatusOr<std::vector<uint8_t>> ReadRegion(JpegFile& file,
                                                const std::string& bytes,
                                                int divisor,
                                                const ImageRegion& region) {
  LOCKSTEP_RETURN_IF_ERROR(
      file.Open(absl::MakeConstSpan(bytes.data(), bytes.size()), kMaxPixels));
  Kept kept(region.width);
  LOCKSTEP_RETURN_IF_ERROR(file.ReadRegion(divisor, region, kept));
  return kept.pixels;
}

// Returns a region of an image whose pixels are given.
std::vector<uint8_t> CutOut(const std::vector<uint8_t>& pixels, int64_t width,
                            const ImageRegion& region) {
  std::vector<uint8_t> part;
  for (int64_t y = region.top; y < region.top + region.height; ++y) {
    const uint8_t* const row = pixels.data() + (y * width + region.left) * 3;
    part.insert(part.end(), row, row + region.width * 3);
  }
  return part;
}

// Returns a region, which often touches an edge or has one row or column.
ImageRegion Draw(int64_t width, int64_t height, Random& random) {
  const auto part = [&random](int64_t all, int64_t& begin, int64_t& count) {
    begin = random.Integer(0, all);
    count = random.Integer(1, all - begin + 1);
    switch (random.Below(6)) {
      case 0:
        begin = 0;
        break;
      case 1:
        begin = all - count;
        break;
      case 2:
        count = 1;
        break;
      case 3:
        begin = 0;
        count = all;
        break;
      default:
        break;
    }
  };
  ImageRegion region;
  part(width, region.left, region.width);
  part(height, region.top, region.height);
  return region;
}

std::vector<JpegKind> AllKinds() {
  std::vector<JpegKind> kinds;
  for (const int across : {1, 2, 4}) {
    for (const int down : {1, 2}) {
      for (const bool progressive : {false, true}) {
        JpegKind kind;
        kind.across = across;
        kind.down = down;
        kind.progressive = progressive;
        kinds.push_back(kind);
      }
    }
  }
  JpegKind tall;
  tall.across = 2;
  tall.down = 4;
  kinds.push_back(tall);
  JpegKind grey;
  grey.components = 1;
  kinds.push_back(grey);
  JpegKind cmyk;
  cmyk.components = 4;
  kinds.push_back(cmyk);
  JpegKind ycck = cmyk;
  ycck.ycck = true;
  ycck.across = ycck.down = 2;
  kinds.push_back(ycck);
  JpegKind restarts;
  restarts.across = restarts.down = 2;
  restarts.restart_interval = 3;
  kinds.push_back(restarts);
  JpegKind arithmetic;
  arithmetic.across = 2;
  arithmetic.arithmetic = true;
  kinds.push_back(arithmetic);
  return kinds;
}

std::string Name(const JpegKind& kind) {
  return absl::StrCat(kind.components, " components, ", kind.across, "x",
                      kind.down, kind.progressive ? ", progressive" : "",
                      kind.restart_interval > 0 ? ", restarts" : "",
                      kind.arithmetic ? ", arithmetic" : "",
                      kind.ycck ? ", YCCK" : "");
}

TEST(JpegFile, ARegionHasThePixelsOfTheWholeImage) {
  constexpr struct {
    int64_t width;
    int64_t height;
  } kSizes[] = {{149, 113}, {64, 48}, {1, 40}, {35, 1}, {7, 5}};
  Random random(/*key=*/5);
  JpegFile file;
  for (const JpegKind& kind : AllKinds()) {
    for (const auto& size : kSizes) {
      const std::string bytes = MakeJpeg(size.width, size.height, kind);
      for (const int divisor : {1, 2, 4, 8}) {
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<uint8_t> all,
                                      ReadAll(file, bytes, divisor));
        ASSERT_THAT(file.warning(), IsEmpty());
        const int64_t width = Scaled(size.width, divisor);
        const int64_t height = Scaled(size.height, divisor);
        for (int i = 0; i < 20; ++i) {
          const ImageRegion region = Draw(width, height, random);
          LOCKSTEP_ASSERT_OK_AND_ASSIGN(
              const std::vector<uint8_t> part,
              ReadRegion(file, bytes, divisor, region));
          EXPECT_TRUE(part == CutOut(all, width, region))
              << Name(kind) << ", " << size.width << " x " << size.height
              << " divided by " << divisor << ", region at " << region.left
              << ", " << region.top << " of " << region.width << " x "
              << region.height;
        }
      }
    }
  }
}

// An image that lacks coefficients is smoothed over several blocks.
TEST(JpegFile, ARegionOfASmoothedImageHasThePixelsOfTheWholeImage) {
  JpegKind kind;
  kind.across = kind.down = 2;
  kind.progressive = true;
  std::string bytes = MakeJpeg(149, 113, kind);
  const size_t second_scan = bytes.find("\xFF\xDA", bytes.find("\xFF\xDA") + 2);
  bytes = bytes.substr(0, second_scan) + "\xFF\xD9";
  Random random(/*key=*/6);
  JpegFile file;
  for (const int divisor : {1, 2, 4, 8}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<uint8_t> all,
                                  ReadAll(file, bytes, divisor));
    for (int i = 0; i < 100; ++i) {
      const ImageRegion region =
          Draw(Scaled(149, divisor), Scaled(113, divisor), random);
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<uint8_t> part,
                                    ReadRegion(file, bytes, divisor, region));
      EXPECT_TRUE(part == CutOut(all, Scaled(149, divisor), region))
          << "divided by " << divisor << ", region at " << region.left << ", "
          << region.top << " of " << region.width << " x " << region.height;
    }
  }
}

TEST(JpegFile, TablesOfOneImageDoNotServeTheNext) {
  const std::string good = MakeJpeg(40, 30, {});
  std::string without = good;
  for (size_t at; (at = without.find("\xFF\xDB")) != std::string::npos;) {
    const size_t length = static_cast<uint8_t>(without[at + 3]);
    without.erase(at, 2 + length);
  }
  JpegFile file;
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(ReadAll(file, without, 1),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("Quantization table 0x00 was not defined")));
    LOCKSTEP_EXPECT_OK(ReadAll(file, good, 1));
  }
}

// If each of them was looked at for each, this would take hours.
TEST(JpegFile, MillionsOfSegmentsTakeLittleTime) {
  const std::string good = MakeJpeg(40, 30, {});
  std::string many = good.substr(0, 2);
  for (int i = 0; i < 2'000'000; ++i) many.append("\xFF\xE1\0\2", 4);
  JpegFile file;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto pixels, ReadAll(file, good, 1));
  EXPECT_THAT(ReadAll(file, many + good.substr(2), 1), IsOkAndHolds(pixels));
  EXPECT_EQ(file.orientation(), 1);
}

TEST(JpegFile, TheFirstExifSegmentHasTheOrientation) {
  const std::string good = MakeJpeg(16, 16, {});
  const auto exif = [](char orientation) {
    const std::string tiff("MM\0*\0\0\0\x8\0\1\1\x12\0\3\0\0\0\1\0", 19);
    return absl::StrCat(absl::string_view("\xFF\xE1\0\x20"
                                          "Exif\0\0",
                                          10),
                        tiff, std::string(1, orientation),
                        std::string(4, '\0'));
  };
  const std::string other(
      "\xFF\xE1\0\x9"
      "XMP.org",
      11);
  JpegFile file;
  for (const std::string& bytes :
       {good.substr(0, 2) + other + exif(6) + exif(3) + good.substr(2),
        good.substr(0, 20) + exif(6) + good.substr(20)}) {
    LOCKSTEP_EXPECT_OK(ReadAll(file, bytes, 1));
    EXPECT_EQ(file.orientation(), 6);
    LOCKSTEP_EXPECT_OK(ReadAll(file, good, 1));
    EXPECT_EQ(file.orientation(), 1);
  }
}

TEST(JpegFile, AFileWithoutItsEndIsAnError) {
  JpegFile file;
  for (const bool progressive : {false, true}) {
    JpegKind kind;
    kind.across = kind.down = 2;
    kind.progressive = progressive;
    const std::string bytes = MakeJpeg(70, 50, kind);
    for (size_t size = 2; size + 1 < bytes.size(); size += 13) {
      SCOPED_TRACE(absl::StrCat(size, " of ", bytes.size(), " bytes",
                                progressive ? ", progressive" : ""));
      const std::string begin = bytes.substr(0, size);
      const absl::Status all = ReadAll(file, begin, 1).status();
      ASSERT_TRUE(absl::IsDataLoss(all)) << all;
      const ImageRegion top = {10, 0, 20, 10};
      const absl::Status part = ReadRegion(file, begin, 1, top).status();
      ASSERT_TRUE(absl::IsDataLoss(part)) << part;
    }
    EXPECT_THAT(ReadAll(file, bytes.substr(0, bytes.size() - 2), 1),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("the JPEG is truncated: ")));
    LOCKSTEP_EXPECT_OK(ReadAll(file, bytes, 1));
  }
}

TEST(JpegFile, JunkBehindTheEndIsIgnored) {
  JpegFile file;
  const std::string bytes = MakeJpeg(40, 30, {});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto pixels, ReadAll(file, bytes, 1));
  const std::string padded = bytes + std::string(5000, '\0') + "junk";
  EXPECT_THAT(ReadAll(file, padded, 1), IsOkAndHolds(pixels));
  LOCKSTEP_EXPECT_OK(ReadRegion(file, padded, 1, {0, 0, 5, 5}));
}

TEST(JpegFile, DataThatEndBeforeTheImageAreAnError) {
  // The second half of the data is missing, and the end marker is there.
  const std::string bytes = MakeJpeg(64, 64, {});
  const std::string half =
      bytes.substr(0, bytes.size() - bytes.size() / 3) + "\xFF\xD9";
  JpegFile file;
  EXPECT_THAT(
      ReadAll(file, half, 1),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr("truncated"), HasSubstr("premature end"))));
}

TEST(JpegFile, AWarningIsKeptUntilTheNextImage) {
  JpegFile file;
  const std::string good = MakeJpeg(40, 30, {});
  std::string odd = good;
  odd.insert(odd.find("\xFF\xC0"), "junk");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto pixels, ReadAll(file, good, 1));
  EXPECT_THAT(file.warning(), IsEmpty());
  EXPECT_THAT(ReadAll(file, odd, 1), IsOkAndHolds(pixels));
  EXPECT_THAT(file.warning(), HasSubstr("4 extraneous bytes"));
  LOCKSTEP_EXPECT_OK(ReadAll(file, good, 1));
  EXPECT_THAT(file.warning(), IsEmpty());
}

TEST(JpegFile, ManyScansAreRefused) {
  JpegKind kind;
  kind.progressive = true;
  const std::string bytes = MakeJpeg(16, 16, kind);
  const size_t scan = bytes.rfind("\xFF\xDA");
  const std::string last = bytes.substr(scan, bytes.size() - 2 - scan);
  std::string many = bytes.substr(0, bytes.size() - 2);
  for (int i = 0; i < JpegFile::kMaxScans; ++i) many += last;
  many += "\xFF\xD9";
  JpegFile file;
  EXPECT_THAT(ReadAll(file, many, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("more than 500 scans")));
  LOCKSTEP_EXPECT_OK(ReadAll(file, bytes, 1));
}

TEST(JpegFile, TheSizeIsCheckedBeforeMemoryIsTaken) {
  std::string bytes = MakeJpeg(16, 16, {});
  const size_t frame = bytes.find("\xFF\xC0");
  for (const size_t at : {frame + 5, frame + 7}) {
    bytes[at] = bytes[at + 1] = '\xFF';
    bytes[at + 1] = '\x00';
  }
  JpegFile file;
  EXPECT_THAT(ReadAll(file, bytes, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("65280 x 65280 pixels"),
                             HasSubstr("max_pixels=16777216"))));
}

TEST(JpegFile, WhatIsNoImageIsAnError) {
  const std::string good = MakeJpeg(16, 16, {});
  const size_t frame = good.find("\xFF\xC0");
  std::string flat = good;
  flat[frame + 5] = flat[frame + 6] = '\0';
  std::string deep = good;
  deep[frame + 4] = 12;
  JpegFile file;
  for (const std::string& bytes :
       {std::string(), std::string("\xFF"), std::string("\xFF\xD8"),
        std::string("\xFF\xD8\xFF\xD9"), flat, deep}) {
    const absl::Status status = ReadAll(file, bytes, 1).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    LOCKSTEP_EXPECT_OK(ReadAll(file, good, 1));
  }
}

// A changed byte may give an error, a warning or other pixels, and the next
// image is right.
TEST(JpegFile, ChangedBytesDoNoHarm) {
  JpegKind kind;
  kind.across = kind.down = 2;
  const std::string good = MakeJpeg(48, 40, kind);
  JpegFile file;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto pixels, ReadAll(file, good, 1));
  Random random(/*key=*/9);
  for (int i = 0; i < 500; ++i) {
    std::string bytes = good;
    bytes[random.Below(bytes.size())] = static_cast<char>(random.Below(256));
    ReadAll(file, bytes, 1).status().IgnoreError();
    if (i % 20 != 0) continue;
    EXPECT_THAT(ReadAll(file, good, 1), IsOkAndHolds(pixels));
  }
}

}  // namespace
}  // namespace lockstep::internal_loader
