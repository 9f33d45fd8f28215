#include "lockstep/loader/images/pixel_rows.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/dtype.h"
#include "lockstep/loader/images/image_options.h"

namespace lockstep::internal_loader {

PixelRows::PixelRows(const ImageOptions& options)
    : is_plain_(options.dtype == DType::kU8 &&
                options.layout == ImageLayout::kChannelsLast),
      is_f32_(options.dtype == DType::kF32),
      channels_first_(options.layout == ImageLayout::kChannelsFirst) {
  for (size_t c = 0; c < 3; ++c) {
    const float mean =
        options.mean.empty() ? 0.0F : static_cast<float>(options.mean[c]);
    const float deviation = options.deviation.empty()
                                ? 1.0F
                                : static_cast<float>(options.deviation[c]);
    for (size_t i = 0; i < 256; ++i) {
      bytes_[c][i] = static_cast<uint8_t>(i);
      floats_[c][i] = (static_cast<float>(i) / 255.0F - mean) / deviation;
    }
  }
}

void PixelRows::Begin(int64_t width, int64_t height, char* memory) {
  width_ = width;
  height_ = height;
  memory_ = memory;
  if (!is_plain_) row_.resize(static_cast<size_t>(width * 3));
}

uint8_t* PixelRows::Memory(int64_t row) {
  if (!is_plain_) return row_.data();
  return reinterpret_cast<uint8_t*>(memory_) + row * width_ * 3;
}

void PixelRows::Done(int64_t row) {
  if (is_plain_) return;
  if (is_f32_) {
    Write(row, floats_.data());
  } else {
    Write(row, bytes_.data());
  }
}

template <typename T>
void PixelRows::Write(int64_t row, const std::array<T, 256>* values) {
  T* const all = reinterpret_cast<T*>(memory_);
  const uint8_t* from = row_.data();
  if (!channels_first_) {
    T* to = all + row * width_ * 3;
    for (int64_t x = 0; x < width_; ++x, from += 3, to += 3) {
      to[0] = values[0][from[0]];
      to[1] = values[1][from[1]];
      to[2] = values[2][from[2]];
    }
    return;
  }
  T* const red = all + row * width_;
  T* const green = red + width_ * height_;
  T* const blue = green + width_ * height_;
  for (int64_t x = 0; x < width_; ++x, from += 3) {
    red[x] = values[0][from[0]];
    green[x] = values[1][from[1]];
    blue[x] = values[2][from[2]];
  }
}

}  // namespace lockstep::internal_loader
