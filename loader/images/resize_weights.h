// The weights of pixels that are summed up to a pixel of another size.
// Internal.
//
//   ResizeWeights weights;
//   weights.Compute({/*in=*/640, /*out=*/224, /*first=*/0, /*count=*/224},
//                   ImageFilter::kBilinear);
//   SumAcross(weights, pixels, /*mirror=*/false, row);
//
// They are those of Pillow: multiples of 2^-22, whose exact values come from
// sums, products and quotients of doubles. A sum is rounded to a byte. So all
// bits are the same everywhere.
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

  // Pixel `first` and the next ones, of which there are `pairs` pairs; or one
  // less than that, and then the last weight is 0. A weight is high * 2^11 +
  // low, where both have 16 bits, which the processor can multiply in pairs: an
  // element of `high` or `low` has the parts of two weights.
  struct Pixel {
    int32_t first = 0;
    int32_t count = 0;  // of pixels whose weight is not that of a missing one
    int32_t pairs = 0;
    size_t weights = 0;  // the first element of `high` and `low`
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

// Makes the wanted pixels of a row, of 3 bytes, from one whose pixels from
// weights.begin() on are given, of 4 bytes. `mirror` turns the new row around.
// It reads up to 16 bytes behind the given pixels, and writes one byte behind
// the new row.
void SumAcross(const ResizeWeights& weights, const uint8_t* from, bool mirror,
               uint8_t* to);

// Makes `bytes` bytes of a row from `pixel.pairs` pairs of rows. It reads up to
// 32 bytes behind them.
void SumDown(const ResizeWeights& weights, const ResizeWeights::Pixel& pixel,
             const uint8_t* const* from, int64_t bytes, uint8_t* to);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_IMAGES_RESIZE_WEIGHTS_H_
