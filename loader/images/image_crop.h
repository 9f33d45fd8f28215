// The parts of images that are used. Internal.
//
//   const RandomCrop crop({0.08, 1.0}, {3.0 / 4.0, 4.0 / 3.0});
//   const ImageRegion part = crop.Draw(640, 480, context.rng());
#ifndef LOCKSTEP_LOADER_IMAGES_IMAGE_CROP_H_
#define LOCKSTEP_LOADER_IMAGES_IMAGE_CROP_H_

#include <array>
#include <cstdint>

#include "lockstep/base/language.h"
#include "lockstep/base/random.h"
#include "lockstep/loader/images/image_file.h"
#include "lockstep/loader/images/resize_weights.h"

namespace lockstep::internal_loader {

// A range of numbers.
struct Bounds {
  double min = 0.0;
  double max = 0.0;
};

// Draws rectangles in the way of torchvision's RandomResizedCrop: an area, and
// then an aspect ratio (width divided by height) whose logarithm has an even
// chance. If ten of them do not fit into the image, the result is the largest
// rectangle in its middle whose aspect is within the bounds. Logarithms differ
// between C libraries, so this uses square roots and products, which do not.
// Thread-safety: thread-safe.
class RandomCrop {
 public:
  // Requires 0 < min <= max for both, and area.max <= 1.
  RandomCrop(Bounds area, Bounds aspect);

  // Takes two draws for each try, or one if the bounds of the area are equal,
  // and two calls of Below, for the top and the left. Requires a width and a
  // height of 1 or more.
  ImageRegion Draw(int64_t width, int64_t height, Random& random) const;

 private:
  double DrawAspect(Random& random) const;

  const Bounds area_;
  const Bounds aspect_;
  // (aspect.max / aspect.min) ^ (1/2), ^ (1/4), ^ (1/8) and so on.
  std::array<double, 32> steps_;
};

// The dimensions of an image whose shorter side is resized to `resize`, and of
// which the middle is wanted. It rounds as torchvision does.
struct CenterCrop {
  ResizeAxis x;
  ResizeAxis y;
};

// Requires width, height <= resize.
CenterCrop CropCenter(int64_t image_width, int64_t image_height, int64_t resize,
                      int64_t width, int64_t height);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_IMAGES_IMAGE_CROP_H_
