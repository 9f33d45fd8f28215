#include "lockstep/loader/images/image_file.h"

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace lockstep::internal_loader {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;
constexpr size_t kEntryBytes = 12;

// Reads numbers of either byte order.
// Thread-safety: thread-compatible.
class TiffNumbers {
 public:
  TiffNumbers(absl::Span<const uint8_t> bytes, bool big_endian)
      : bytes_(bytes), big_endian_(big_endian) {}

  bool Has(size_t offset, size_t count) const {
    return offset <= bytes_.size() && count <= bytes_.size() - offset;
  }

  // Requires Has(offset, bytes).
  uint32_t Get(size_t offset, int bytes) const {
    uint32_t value = 0;
    for (int i = 0; i < bytes; ++i) {
      const int at = big_endian_ ? i : bytes - 1 - i;
      value = value << 8 | bytes_[offset + static_cast<size_t>(at)];
    }
    return value;
  }

 private:
  const absl::Span<const uint8_t> bytes_;
  const bool big_endian_;
};

// Returns the bytes of a number of a TIFF type, or 0 for types that no
// orientation has.
int BytesOfType(uint32_t type) {
  switch (type) {
    case 1:  // BYTE
      return 1;
    case 3:  // SHORT
      return 2;
    case 4:  // LONG
      return 4;
    default:
      return 0;
  }
}

}  // namespace

absl::Status CheckImageSize(int64_t width, int64_t height, int64_t max_pixels) {
  if (width <= 0 || height <= 0) {
    return absl::DataLossError(
        absl::StrCat("the image has ", width, " x ", height, " pixels"));
  }
  if (width > max_pixels / height) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the image has ", width, " x ", height,
        " pixels, which is more than max_pixels=", max_pixels,
        "; make max_pixels larger if such images are meant to be read"));
  }
  if (width > kMaxImageSide || height > kMaxImageSide) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the image has ", width, " x ", height, " pixels, but at most ",
        kMaxImageSide, " on each side are accepted; cut it into smaller ones"));
  }
  return absl::OkStatus();
}

int ExifOrientation(absl::Span<const uint8_t> tiff) {
  if (tiff.size() < 8 || tiff[0] != tiff[1]) return 1;
  if (tiff[0] != 'I' && tiff[0] != 'M') return 1;
  const TiffNumbers numbers(tiff, /*big_endian=*/tiff[0] == 'M');
  if (numbers.Get(2, 2) != 42) return 1;
  const size_t directory = numbers.Get(4, 4);
  if (!numbers.Has(directory, 2)) return 1;
  const uint32_t entries = numbers.Get(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (!numbers.Has(entry, kEntryBytes)) return 1;
    if (numbers.Get(entry, 2) != kOrientationTag) continue;
    const int bytes = BytesOfType(numbers.Get(entry + 2, 2));
    const uint32_t value = numbers.Get(entry + 8, bytes);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace lockstep::internal_loader
