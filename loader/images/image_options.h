// The options of an ImageDataset.
//
//   ImageOptions options;
//   options.height = options.width = 224;
//   options.crop = ImageCrop::kRandom;
//   options.flip = true;
#ifndef LOCKSTEP_LOADER_IMAGES_IMAGE_OPTIONS_H_
#define LOCKSTEP_LOADER_IMAGES_IMAGE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"

namespace lockstep {

// The part of an image that is used.
enum class ImageCrop {
  // All of it, which is stretched to the size.
  kNone,
  // The middle, for evaluation: the image is resized until its shorter side
  // has `resize` pixels, and its middle is cut out. This is torchvision's
  // Resize and CenterCrop.
  kCenter,
  // A random rectangle, which is stretched to the size. This is torchvision's
  // RandomResizedCrop, with other random numbers.
  kRandom,
};

// The way to resize. Both look at all pixels that make up a new one, so that
// nothing flickers (torchvision calls this antialias).
enum class ImageFilter { kBilinear, kBicubic };

// The order of the dimensions: [height, width, 3] or [3, height, width].
enum class ImageLayout { kChannelsLast, kChannelsFirst };

struct ImageOptions {
  // The field with the files, which becomes the field with the pixels.
  std::string field = "image";

  // The size of the result. 0 for both: each image keeps its own size, and the
  // field is ragged, [-1, -1, 3].
  int64_t height = 0;
  int64_t width = 0;

  ImageCrop crop = ImageCrop::kNone;

  // For kCenter: the pixels of the shorter side before the middle is cut out.
  // 0: 8/7 of the larger one of `height` and `width`, which is 256 for 224.
  int64_t resize = 0;

  // For kRandom: bounds of the rectangle's part of the image's area, and of its
  // width divided by its height.
  double min_area = 0.08;
  double max_area = 1.0;
  double min_aspect = 3.0 / 4.0;
  double max_aspect = 4.0 / 3.0;

  // If true, half of the images are mirrored: left is right.
  bool flip = false;

  ImageFilter filter = ImageFilter::kBilinear;

  // If true, a JPEG is decoded at 1/2, 1/4 or 1/8 of its size where this still
  // has at least as many pixels as are needed. It is faster for large photos,
  // and has other bits.
  bool scaled_decoding = false;

  // kU8: the pixels as they are, from 0 to 255. kF32: (pixel / 255 - mean) /
  // deviation, for each of red, green and blue, as by torchvision's ToTensor
  // and Normalize. `mean` has 3 values from -1 to 1, or none, which stands for
  // 0. `deviation` has 3 values above 0, or none, which stands for 1.
  DType dtype = DType::kU8;
  std::vector<double> mean;
  std::vector<double> deviation;

  ImageLayout layout = ImageLayout::kChannelsLast;

  // The most pixels that an image may have. It must be given if images keep
  // their sizes, since each row of a batch has memory for so many. 0: 100
  // million. While it is decoded, a progressive JPEG takes up to 6 bytes of
  // memory for each pixel, or 8 in CMYK, and other images take less. An image
  // that is turned takes 4 more.
  int64_t max_pixels = 0;

  // Called with a line for people if a decoder warns about an image, at the
  // first, tenth, hundredth and so on; from any thread that reads.
  std::function<void(absl::string_view line)> warn;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_IMAGES_IMAGE_OPTIONS_H_
