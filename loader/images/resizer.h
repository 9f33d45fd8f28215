// A Resizer resizes an image that comes row by row, with the bits of Pillow's
// Image.resize. Internal.
//
//   Resizer resizer;
//   resizer.Begin(/*x=*/{640, 224, 0, 224}, /*y=*/{480, 224, 0, 224},
//                 ImageFilter::kBilinear, /*mirror=*/false, rows);
//   file.ReadRegion(/*divisor=*/1, resizer.needed(), resizer);
//
// Pillow resizes in two passes, first from left to right and then from top to
// bottom, and rounds to a byte after each.
#ifndef LOCKSTEP_LOADER_IMAGES_RESIZER_H_
#define LOCKSTEP_LOADER_IMAGES_RESIZER_H_

#include <cstdint>
#include <vector>

#include "lockstep/base/language.h"
#include "lockstep/loader/images/image_file.h"
#include "lockstep/loader/images/image_options.h"
#include "lockstep/loader/images/resize_weights.h"

namespace lockstep::internal_loader {

// Takes the rows of the new image.
class ResizedRows {
 public:
  virtual ~ResizedRows() = default;

  // Returns memory for 3 bytes of each pixel of the row.
  virtual uint8_t* Memory(int64_t row) = 0;

  // Called when the row was written.
  virtual void Done(int64_t row) = 0;
};

// Thread-safety: thread-compatible. It keeps its memory from image to image.
class Resizer : public RowSink {
 public:
  // Begins a new image, whose rows go to `rows`. If `mirror` is true, left
  // becomes right.
  void Begin(const ResizeAxis& x, const ResizeAxis& y, ImageFilter filter,
             bool mirror, ResizedRows& rows);

  // Returns the part of the old image that the new one depends on.
  ImageRegion needed() const;

  // Takes the next row of this part.
  void Take(const uint8_t* pixels) override;

 private:
  uint8_t* RowOf(int64_t row);

  ResizeWeights x_;
  ResizeWeights y_;
  bool mirror_ = false;
  ResizedRows* rows_ = nullptr;
  int64_t taken_ = 0;    // the old row after those that were taken
  int64_t written_ = 0;  // the new rows that were written
  int64_t row_bytes_ = 0;
  std::vector<uint8_t> ring_;  // old rows with new columns
  std::vector<const uint8_t*> some_;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_IMAGES_RESIZER_H_
