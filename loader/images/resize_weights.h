// The weights of pixels that are summed up to a pixel of another size.
// Internal.
//
//   ResizeWeights weights;
//   weights.Compute({/*in=*/640, /*out=*/224, /*first=*/0, /*count=*/224},
//                   ImageFilter::kBilinear);
//
// They are those of Pillow: multiples of 2^-22, whose exact values come from
// sums, products and quotients of doubles, so they are the same everywhere.
#ifndef LOCKSTEP_LOADER_IMAGES_RESIZE_WEIGHTS_H_
#define LOCKSTEP_LOADER_IMAGES_RESIZE_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/base/language.h"
#include "lockstep/loader/images/image_options.h"

namespace lockstep::internal_loader {

// One dimension of an image that is resized.
struct ResizeAxis {
  int64_t in = 0;     // the pixels there are
  int64_t out = 0;    // the pixels that they become
  int64_t first = 0;  // of the latter: the first one that is wanted,
  int64_t count = 0;  // and how many are wanted
};

// The weights with which pixels are summed up, for each new pixel of an axis.
// Thread-safety: thread-compatible.
class ResizeWeights {
 public:
  void Compute(const ResizeAxis& axis, ImageFilter filter);

  // The bits of a weight behind the point, and those of its low part.
  static constexpr int kBits = 22;
  static constexpr int kLowBits = 11;

  // A new pixel is made of `count` old ones from `first` on, which are `pairs`
  // pairs; if `count` is odd, the last pair has one with the weight 0. A weight
  // has a high and a low part of 16 bits each, since processors multiply pairs
  // of these at once. An element of `high` or `low` has the parts of two
  // weights, the first of which is in the lower 16 bits. The elements of each
  // pixel are followed by one with weights of 0 if there is an odd number.
  struct Pixel {
    int32_t first = 0;
    int32_t count = 0;
    int32_t pairs = 0;
    size_t weights = 0;  // the first element
  };
  const std::vector<Pixel>& pixels() const { return pixels_; }
  const int32_t* high() const { return high_.data(); }
  const int32_t* low() const { return low_.data(); }

  // Return the range of the old pixels that have a weight, and the most of them
  // that make a new one.
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  int64_t most() const { return most_; }

 private:
  std::vector<Pixel> pixels_;
  std::vector<int32_t> high_;
  std::vector<int32_t> low_;
  std::vector<double> exact_;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  int64_t most_ = 0;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_IMAGES_RESIZE_WEIGHTS_H_
