// An ImageReader decodes, cuts, resizes and converts one image after another.
// Internal.
//
//   ImageReader reader(options);
//   LOCKSTEP_RETURN_IF_ERROR(reader.Open(bytes, context.rng()));
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       absl::Span<char> pixels,
//       row.MutableRaggedBytes(0, reader.shape()));
//   LOCKSTEP_RETURN_IF_ERROR(reader.Read(pixels.data()));
#ifndef LOCKSTEP_LOADER_IMAGES_IMAGE_READER_H_
#define LOCKSTEP_LOADER_IMAGES_IMAGE_READER_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/base/random.h"
#include "lockstep/loader/images/image_crop.h"
#include "lockstep/loader/images/image_file.h"
#include "lockstep/loader/images/image_options.h"
#include "lockstep/loader/images/jpeg_file.h"
#include "lockstep/loader/images/pixel_rows.h"
#include "lockstep/loader/images/png_file.h"
#include "lockstep/loader/images/resizer.h"

namespace lockstep::internal_loader {

// Thread-safety: thread-compatible. It keeps memory from image to image.
class ImageReader {
 public:
  // Requires that the options fit together, and that `resize` and `max_pixels`
  // are set. They must live as long as the reader.
  explicit ImageReader(const ImageOptions& options);

  // Reads the header of a JPEG or a PNG, and draws its part. `bytes` must live
  // until Read returns.
  absl::Status Open(absl::Span<const char> bytes, Random& random);

  // Returns the shape of the result.
  std::array<int64_t, 3> shape() const;

  // Writes the result, which has this shape.
  absl::Status Read(char* to);

  // Returns the decoder's first warning about the image, or "".
  const std::string& warning() const { return file_->warning(); }

 private:
  void ChoosePart(Random& random);
  int ChooseDivisor() const;
  ImageRegion Stored(const ImageRegion& region) const;
  absl::Status ReadTurned(const ImageRegion& region);

  const ImageOptions& options_;
  const RandomCrop random_crop_;
  JpegFile jpeg_;
  PngFile png_;
  ImageFile* file_ = nullptr;  // one of these
  PixelRows rows_;
  Resizer resizer_;

  // The image as its orientation says, and the result.
  int64_t width_ = 0;
  int64_t height_ = 0;
  int64_t new_width_ = 0;
  int64_t new_height_ = 0;
  bool mirror_ = false;
  ImageRegion part_;  // what is resized
  ResizeAxis x_;      // how it is resized
  ResizeAxis y_;
  int divisor_ = 1;

  std::vector<uint8_t> turned_;  // a row of an image that is turned
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_IMAGES_IMAGE_READER_H_
