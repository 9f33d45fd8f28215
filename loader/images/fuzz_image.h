// The fuzzers of images have this in common.
//
//   FuzzInput input(data, size);
//   const ImageCase image = TakeImageCase(input);
//   CheckImage(image, input.Rest(), [] { return std::make_unique<PngFile>();
//   });
#ifndef LOCKSTEP_LOADER_IMAGES_FUZZ_IMAGE_H_
#define LOCKSTEP_LOADER_IMAGES_FUZZ_IMAGE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/strings/string_view.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/images/image_file.h"
#include "lockstep/loader/images/image_options.h"

namespace lockstep::internal_loader {

// The way to read an image.
struct ImageCase {
  ImageOptions options;
  uint64_t seed = 0;
  int divisor = 1;
  // The left, width, top and height of a region, as parts of what is possible.
  std::array<uint8_t, 4> region = {};
};

// Takes 8 bytes. If they are 0, an image keeps its size.
ImageCase TakeImageCase(FuzzInput& input);

// Checks what holds for each file, broken or not:
//
// * It is decoded to the same pixels, warning or error each time, by a new
//   ImageFile or ImageReader, and by one that has just read this or another
//   file, or met an error. All of the result is written.
// * If all of it can be decoded, a region can be decoded, whose pixels are the
//   same.
// * An ImageReader turns it as its EXIF orientation says, and its types and
//   layouts have the same pixels.
void CheckImage(const ImageCase& image, absl::string_view bytes,
                const std::function<std::unique_ptr<ImageFile>()>& make);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_IMAGES_FUZZ_IMAGE_H_
