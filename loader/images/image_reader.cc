#include "lockstep/loader/images/image_reader.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/images/image_crop.h"
#include "lockstep/loader/images/image_file.h"
#include "lockstep/loader/images/image_options.h"

namespace lockstep::internal_loader {
namespace {

constexpr absl::string_view kJpegHead("\xFF\xD8\xFF", 3);
constexpr absl::string_view kPngHead("\x89PNG\r\n\x1A\n", 8);

// An EXIF orientation turns an image in two steps: first it is mirrored, and
// then rows become columns. These functions say which of them it has.
bool MirrorsColumns(int orientation) {
  return orientation == 2 || orientation == 3 || orientation == 6 ||
         orientation == 7;
}
bool MirrorsRows(int orientation) {
  return orientation == 3 || orientation == 4 || orientation == 7 ||
         orientation == 8;
}
bool SwapsAxes(int orientation) { return orientation >= 5; }

absl::Status UnknownKind(absl::string_view bytes) {
  if (bytes.empty()) return absl::DataLossError("the image has no bytes");
  const char* kind = "";
  if (bytes.substr(0, 4) == "RIFF" &&
      absl::ClippedSubstr(bytes, 8, 4) == "WEBP") {
    kind = " (WebP)";
  } else if (bytes.substr(0, 4) == "GIF8") {
    kind = " (GIF)";
  } else if (bytes.substr(0, 4) == absl::string_view("II*\0", 4) ||
             bytes.substr(0, 4) == absl::string_view("MM\0*", 4)) {
    kind = " (TIFF)";
  } else if (bytes.substr(0, 2) == "BM") {
    kind = " (BMP)";
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the image is neither a JPEG nor a PNG; it begins with the bytes \"",
      absl::CHexEscape(bytes.substr(0, 12)), "\"", kind));
}

// Keeps rows as they come.
// Thread-safety: thread-compatible.
class KeptRows : public RowSink {
 public:
  KeptRows(int64_t row_bytes, uint8_t* to) : row_bytes_(row_bytes), to_(to) {}
  void Take(const uint8_t* pixels) override {
    std::memcpy(to_, pixels, static_cast<size_t>(row_bytes_));
    to_ += row_bytes_;
  }

 private:
  const int64_t row_bytes_;
  uint8_t* to_;
};

}  // namespace

ImageReader::ImageReader(const ImageOptions& options)
    : options_(options),
      random_crop_({options.min_area, options.max_area},
                   {options.min_aspect, options.max_aspect}),
      rows_(options) {}

absl::Status ImageReader::Open(absl::Span<const char> bytes, Random& random) {
  const absl::string_view text(bytes.data(), bytes.size());
  if (text.substr(0, kJpegHead.size()) == kJpegHead) {
    file_ = &jpeg_;
  } else if (text.substr(0, kPngHead.size()) == kPngHead) {
    file_ = &png_;
  } else {
    return UnknownKind(text);
  }
  LOCKSTEP_RETURN_IF_ERROR(file_->Open(bytes, options_.max_pixels));
  width_ = file_->width();
  height_ = file_->height();
  if (SwapsAxes(file_->orientation())) std::swap(width_, height_);
  new_width_ = options_.width > 0 ? options_.width : width_;
  new_height_ = options_.height > 0 ? options_.height : height_;
  ChoosePart(random);
  return absl::OkStatus();
}

std::array<int64_t, 3> ImageReader::shape() const {
  if (options_.layout == ImageLayout::kChannelsFirst) {
    return {3, new_height_, new_width_};
  }
  return {new_height_, new_width_, 3};
}

// Sets the part of the image, by full pixels, and how it is resized.
void ImageReader::ChoosePart(Random& random) {
  mirror_ = options_.flip && random.Below(2) == 1;
  part_ = {0, 0, width_, height_};
  if (options_.crop == ImageCrop::kRandom) {
    part_ = random_crop_.Draw(width_, height_, random);
  }
  x_ = {part_.width, new_width_, 0, new_width_};
  y_ = {part_.height, new_height_, 0, new_height_};
  if (options_.crop == ImageCrop::kCenter) {
    const CenterCrop crop =
        CropCenter(width_, height_, options_.resize, new_width_, new_height_);
    x_ = crop.x;
    y_ = crop.y;
  }
  divisor_ = ChooseDivisor();
  if (divisor_ == 1) return;
  // The pixels that have something of the part.
  const int64_t right = DivideUp(part_.left + part_.width, divisor_);
  const int64_t bottom = DivideUp(part_.top + part_.height, divisor_);
  part_.left /= divisor_;
  part_.top /= divisor_;
  part_.width = right - part_.left;
  part_.height = bottom - part_.top;
  x_.in = part_.width;
  y_.in = part_.height;
}

// Returns the largest divisor of sizes that leaves enough pixels.
int ImageReader::ChooseDivisor() const {
  if (!options_.scaled_decoding) return 1;
  int divisor = file_->max_divisor();
  while (divisor > 1 &&
         (x_.in / divisor < x_.out || y_.in / divisor < y_.out)) {
    divisor /= 2;
  }
  return divisor;
}

// Returns where a region of the image lies in the file.
ImageRegion ImageReader::Stored(const ImageRegion& region) const {
  ImageRegion stored = region;
  const int orientation = file_->orientation();
  if (MirrorsColumns(orientation)) {
    stored.left = DivideUp(width_, divisor_) - region.left - region.width;
  }
  if (MirrorsRows(orientation)) {
    stored.top = DivideUp(height_, divisor_) - region.top - region.height;
  }
  if (SwapsAxes(orientation)) {
    std::swap(stored.left, stored.top);
    std::swap(stored.width, stored.height);
  }
  return stored;
}

absl::Status ImageReader::Read(char* to) {
  rows_.Begin(new_width_, new_height_, to);
  const bool same_size = x_.in == x_.out && x_.count == x_.out &&
                         y_.in == y_.out && y_.count == y_.out;
  if (same_size && x_.in == DivideUp(width_, divisor_) &&
      y_.in == DivideUp(height_, divisor_) && file_->orientation() == 1 &&
      !mirror_ && rows_.is_plain()) {
    return file_->ReadAll(divisor_, reinterpret_cast<uint8_t*>(to));
  }
  resizer_.Begin(x_, y_, options_.filter, mirror_, rows_);
  ImageRegion region = resizer_.needed();
  region.left += part_.left;
  region.top += part_.top;
  if (file_->orientation() != 1) return ReadTurned(region);
  return file_->ReadRegion(divisor_, region, resizer_);
}

absl::Status ImageReader::ReadTurned(const ImageRegion& region) {
  constexpr int64_t kBytes = RowSink::kPixelBytes;
  const ImageRegion stored = Stored(region);
  const int64_t row_bytes = stored.width * kBytes;
  std::vector<uint8_t> pixels(static_cast<size_t>(row_bytes * stored.height));
  KeptRows kept(row_bytes, pixels.data());
  LOCKSTEP_RETURN_IF_ERROR(file_->ReadRegion(divisor_, stored, kept));

  // The first pixel of the region, and the bytes from it to those on its right
  // and below it.
  const int orientation = file_->orientation();
  int64_t right = SwapsAxes(orientation) ? row_bytes : kBytes;
  int64_t down = SwapsAxes(orientation) ? kBytes : row_bytes;
  const uint8_t* first = pixels.data();
  if (MirrorsColumns(orientation)) {
    first += right * (region.width - 1);
    right = -right;
  }
  if (MirrorsRows(orientation)) {
    first += down * (region.height - 1);
    down = -down;
  }
  turned_.resize(static_cast<size_t>(region.width * kBytes + RowSink::kBehind));
  for (int64_t y = 0; y < region.height; ++y) {
    for (int64_t x = 0; x < region.width; ++x) {
      std::memcpy(turned_.data() + x * kBytes, first + y * down + x * right,
                  static_cast<size_t>(kBytes));
    }
    resizer_.Take(turned_.data());
  }
  return absl::OkStatus();
}

}  // namespace lockstep::internal_loader
