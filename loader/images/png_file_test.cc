// These tests check that a part of a PNG has the pixels that the whole image
// has there, and that broken files are errors. image_golden_test.cc reads all
// kinds.
#include "lockstep/loader/images/png_file.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/images/image_dataset_testing.h"
#include "lockstep/loader/images/image_file.h"

namespace lockstep::internal_loader {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMaxPixels = 1 << 20;

// Keeps red, green and blue of all rows.
class Kept : public RowSink {
 public:
  explicit Kept(int64_t width) : width_(width) {}

  void Take(const uint8_t* row) override {
    for (int64_t x = 0; x < width_; ++x) {
      pixels.append(reinterpret_cast<const char*>(row) + x * kPixelBytes, 3);
    }
  }

  std::string pixels;

 private:
  const int64_t width_;
};

absl::StatusOr<std::string> ReadRegion(PngFile& file, const std::string& bytes,
                                       const ImageRegion& region) {
  LOCKSTEP_RETURN_IF_ERROR(
      file.Open(absl::MakeConstSpan(bytes.data(), bytes.size()), kMaxPixels));
  Kept kept(region.width);
  LOCKSTEP_RETURN_IF_ERROR(file.ReadRegion(/*divisor=*/1, region, kept));
  return kept.pixels;
}

absl::StatusOr<std::string> ReadAll(PngFile& file, const std::string& bytes) {
  LOCKSTEP_RETURN_IF_ERROR(
      file.Open(absl::MakeConstSpan(bytes.data(), bytes.size()), kMaxPixels));
  std::string pixels(static_cast<size_t>(file.width() * file.height() * 3),
                     '\0');
  LOCKSTEP_RETURN_IF_ERROR(
      file.ReadAll(/*divisor=*/1, reinterpret_cast<uint8_t*>(&pixels[0])));
  return pixels;
}

TEST(PngFile, ARegionHasThePixelsOfTheWholeImage) {
  constexpr int64_t kWidth = 19;
  const std::string pixels = NoisePixels(kWidth, 13, /*seed=*/3);
  const std::string bytes = PngOf(kWidth, 13, pixels);
  PngFile file;
  EXPECT_THAT(ReadAll(file, bytes), IsOkAndHolds(pixels));
  for (const ImageRegion region : {ImageRegion{0, 0, kWidth, 13},
                                   {4, 2, 7, 5},
                                   {18, 12, 1, 1},
                                   {0, 12, 3, 1},
                                   {0, 0, 1, 13}}) {
    std::string part;
    for (int64_t y = region.top; y < region.top + region.height; ++y) {
      part += pixels.substr(static_cast<size_t>((y * kWidth + region.left) * 3),
                            static_cast<size_t>(region.width * 3));
    }
    EXPECT_THAT(ReadRegion(file, bytes, region), IsOkAndHolds(part));
  }
}

// Only the checksum of the last chunk, which is empty, may be missing.
TEST(PngFile, AFileWithoutItsEndIsAnError) {
  const std::string bytes = NoisePng(16, 16, /*seed=*/3);
  PngFile file;
  for (size_t size = 8; size + 4 < bytes.size(); ++size) {
    const std::string begin = bytes.substr(0, size);
    const absl::Status all = ReadAll(file, begin).status();
    ASSERT_TRUE(absl::IsDataLoss(all)) << size << " bytes: " << all;
    const absl::Status part = ReadRegion(file, begin, {0, 0, 2, 2}).status();
    ASSERT_TRUE(absl::IsDataLoss(part)) << size << " bytes: " << part;
  }
  EXPECT_THAT(
      ReadAll(file, bytes.substr(0, 50)),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("the PNG is truncated")));
}

// The pixels below a part are checked, too.
TEST(PngFile, AChangedByteIsAnError) {
  const std::string good = NoisePng(16, 16, /*seed=*/3);
  PngFile file;
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    const absl::Status status = ReadRegion(file, bytes, {0, 0, 2, 2}).status();
    ASSERT_FALSE(status.ok()) << "byte " << at << " of " << good.size();
  }
  LOCKSTEP_EXPECT_OK(ReadAll(file, good));
}

TEST(PngFile, TheSizeIsCheckedBeforeMemoryIsTaken) {
  const std::string header =
      absl::StrCat(BigEndian(60000), BigEndian(60000),
                   absl::string_view("\x08\x02\0\0\0", 5));
  PngFile file;
  EXPECT_THAT(
      ReadAll(file, absl::StrCat(absl::string_view("\x89PNG\r\n\x1A\n", 8),
                                 PngChunk("IHDR", header))),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("60000 x 60000 pixels")));
}

}  // namespace
}  // namespace lockstep::internal_loader
