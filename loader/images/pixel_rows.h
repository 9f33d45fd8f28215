// PixelRows writes the rows of an image into a field of a batch. Internal.
//
//   PixelRows rows(options);
//   rows.Begin(/*width=*/224, /*height=*/224, memory);
//   std::memcpy(rows.Memory(0), pixels, 224 * 3);
//   rows.Done(0);
#ifndef LOCKSTEP_LOADER_IMAGES_PIXEL_ROWS_H_
#define LOCKSTEP_LOADER_IMAGES_PIXEL_ROWS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/base/language.h"
#include "lockstep/loader/images/image_options.h"
#include "lockstep/loader/images/resizer.h"

namespace lockstep::internal_loader {

// Converts each row to the type and the layout of the field.
// Thread-safety: thread-compatible.
class PixelRows : public ResizedRows {
 public:
  explicit PixelRows(const ImageOptions& options);

  // Begins an image, which takes all of `memory`.
  void Begin(int64_t width, int64_t height, char* memory);

  // Returns true if the field has the pixels as a decoder gives them: 3 bytes
  // each.
  bool is_plain() const { return is_plain_; }

  uint8_t* Memory(int64_t row) override;
  void Done(int64_t row) override;

 private:
  template <typename T>
  void Write(int64_t row, const std::array<T, 256>* values);

  const bool is_plain_;
  const bool is_f32_;
  const bool channels_first_;
  // The value of each byte, for red, green and blue.
  std::array<std::array<float, 256>, 3> floats_;
  std::array<std::array<uint8_t, 256>, 3> bytes_;
  int64_t width_ = 0;
  int64_t height_ = 0;
  char* memory_ = nullptr;
  std::vector<uint8_t> row_;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_IMAGES_PIXEL_ROWS_H_
