#include "lockstep/loader/images/image_crop.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lockstep/base/random.h"
#include "lockstep/loader/images/image_file.h"
#include "lockstep/loader/images/resize_weights.h"

namespace lockstep::internal_loader {
namespace {

constexpr int kTries = 10;

// Returns (all - part) / 2, rounded to nearest, and to even from the middle.
int64_t HalfOfRest(int64_t all, int64_t part) {
  const int64_t rest = all - part;
  const int64_t half = rest / 2;
  return rest % 2 != 0 && half % 2 != 0 ? half + 1 : half;
}

// Rounds a positive number to nearest, and to even from the middle.
int64_t Round(double value) {
  const auto below = static_cast<int64_t>(value);
  const double rest = value - static_cast<double>(below);
  return rest > 0.5 || (rest == 0.5 && below % 2 != 0) ? below + 1 : below;
}

// Returns the largest part in the middle of the image whose aspect is within
// the bounds.
ImageRegion MiddleOf(int64_t width, int64_t height, Bounds aspect) {
  const double image = static_cast<double>(width) / static_cast<double>(height);
  ImageRegion part = {0, 0, width, height};
  if (image < aspect.min) {
    part.height = Round(static_cast<double>(width) / aspect.min);
  } else if (image > aspect.max) {
    part.width = Round(static_cast<double>(height) * aspect.max);
  }
  part.width = std::clamp<int64_t>(part.width, 1, width);
  part.height = std::clamp<int64_t>(part.height, 1, height);
  part.left = (width - part.width) / 2;
  part.top = (height - part.height) / 2;
  return part;
}

}  // namespace

RandomCrop::RandomCrop(Bounds area, Bounds aspect)
    : area_(area), aspect_(aspect) {
  double step = aspect.max / aspect.min;
  for (double& next : steps_) next = step = std::sqrt(step);
}

double RandomCrop::DrawAspect(Random& random) const {
  const uint64_t bits = random();
  double aspect = aspect_.min;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if ((bits >> (63 - i) & 1) != 0) aspect *= steps_[i];
  }
  return aspect;
}

ImageRegion RandomCrop::Draw(int64_t width, int64_t height,
                             Random& random) const {
  const double pixels =
      static_cast<double>(width) * static_cast<double>(height);
  for (int i = 0; i < kTries; ++i) {
    const double area = pixels * random.Uniform(area_.min, area_.max);
    const double aspect = DrawAspect(random);
    ImageRegion part;
    part.width = Round(std::sqrt(area * aspect));
    part.height = Round(std::sqrt(area / aspect));
    if (part.width < 1 || part.width > width || part.height < 1 ||
        part.height > height) {
      continue;
    }
    part.top = random.Integer(0, height - part.height + 1);
    part.left = random.Integer(0, width - part.width + 1);
    return part;
  }
  return MiddleOf(width, height, aspect_);
}

CenterCrop CropCenter(int64_t image_width, int64_t image_height, int64_t resize,
                      int64_t width, int64_t height) {
  CenterCrop crop;
  crop.x.in = image_width;
  crop.y.in = image_height;
  if (image_width <= image_height) {
    crop.x.out = resize;
    crop.y.out = resize * image_height / image_width;
  } else {
    crop.x.out = resize * image_width / image_height;
    crop.y.out = resize;
  }
  crop.x.first = HalfOfRest(crop.x.out, width);
  crop.x.count = width;
  crop.y.first = HalfOfRest(crop.y.out, height);
  crop.y.count = height;
  return crop;
}

}  // namespace lockstep::internal_loader
