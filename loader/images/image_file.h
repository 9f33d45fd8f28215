// An ImageFile decodes one encoded image after another. Internal.
//
//   JpegFile file;
//   LOCKSTEP_RETURN_IF_ERROR(file.Open(bytes, /*max_pixels=*/1 << 26));
//   LOCKSTEP_RETURN_IF_ERROR(file.ReadAll(/*divisor=*/1, pixels));
//
// Errors say what is wrong with the file: DATA_LOSS if it is broken or if the
// decoder can't read it, INVALID_ARGUMENT if it is no image or has too many
// pixels, and RESOURCE_EXHAUSTED if there is no memory.
#ifndef LOCKSTEP_LOADER_IMAGES_IMAGE_FILE_H_
#define LOCKSTEP_LOADER_IMAGES_IMAGE_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_loader {

// A rectangle of pixels.
struct ImageRegion {
  int64_t left = 0;
  int64_t top = 0;
  int64_t width = 0;
  int64_t height = 0;
};

// Takes the rows of a region from top to bottom.
class RowSink {
 public:
  // A pixel has 4 bytes: red, green, blue and some value.
  static constexpr int64_t kPixelBytes = 4;

  // So many bytes behind the pixels of a row may be read.
  static constexpr int64_t kBehind = 16;

  virtual ~RowSink() = default;
  virtual void Take(const uint8_t* pixels) = 0;
};

// Thread-safety: thread-compatible. It keeps memory from image to image.
class ImageFile {
 public:
  virtual ~ImageFile() = default;

  // Reads the header. An image that has more pixels is INVALID_ARGUMENT, and
  // nothing is allocated for it. `bytes` must live until the image was read.
  virtual absl::Status Open(absl::Span<const char> bytes,
                            int64_t max_pixels) = 0;

  // Return what the header says: the size as it is stored, and the EXIF
  // orientation, from 1 to 8; 1 if the file does not say it.
  int64_t width() const { return width_; }
  int64_t height() const { return height_; }
  int orientation() const { return orientation_; }

  // Returns the largest divisor of sizes: 8 for files that can be decoded at
  // 1/2, 1/4 or 1/8 of their size, and 1 for others.
  virtual int max_divisor() const { return 1; }

  // Decodes the image into width x height pixels of 3 bytes, where both are
  // divided by `divisor` and rounded up. Once for each call of Open.
  virtual absl::Status ReadAll(int divisor, uint8_t* pixels) = 0;

  // Decodes a region of this image. It may stop at the last row of the region.
  virtual absl::Status ReadRegion(int divisor, const ImageRegion& region,
                                  RowSink& sink) = 0;

  // Returns the decoder's first warning about this image, or "".
  const std::string& warning() const { return warning_; }

 protected:
  int64_t width_ = 0;
  int64_t height_ = 0;
  int orientation_ = 1;
  std::string warning_;
};

// Returns value / divisor, rounded up.
inline int64_t DivideUp(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// The most pixels of a side, which is what a JPEG can have at most. The memory
// and the time to resize an image depend on its sides.
inline constexpr int64_t kMaxImageSide = 65'535;

// Returns the error for an image with no or too many pixels, or OK.
absl::Status CheckImageSize(int64_t width, int64_t height, int64_t max_pixels);

// Returns the orientation in the TIFF structure of an EXIF block, or 1.
int ExifOrientation(absl::Span<const uint8_t> tiff);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_IMAGES_IMAGE_FILE_H_
