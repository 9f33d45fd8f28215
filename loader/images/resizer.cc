#include "lockstep/loader/images/resizer.h"

#include <cstddef>
#include <cstdint>

#include "lockstep/loader/images/image_file.h"
#include "lockstep/loader/images/image_options.h"
#include "lockstep/loader/images/resize_weights.h"
#include "lockstep/loader/images/weighted_sums.h"

namespace lockstep::internal_loader {
namespace {

// Bytes behind the rows of the ring, which may be read and written.
constexpr int64_t kRingBehind = 32;

}  // namespace

void Resizer::Begin(const ResizeAxis& x, const ResizeAxis& y,
                    ImageFilter filter, bool mirror, ResizedRows& rows) {
  x_.Compute(x, filter);
  y_.Compute(y, filter);
  mirror_ = mirror;
  rows_ = &rows;
  taken_ = y_.begin();
  written_ = 0;
  row_bytes_ = x.count * 3;
  ring_.resize(static_cast<size_t>((row_bytes_ + kRingBehind) * y_.most()));
}

ImageRegion Resizer::needed() const {
  return {x_.begin(), y_.begin(), x_.end() - x_.begin(), y_.end() - y_.begin()};
}

uint8_t* Resizer::RowOf(int64_t row) {
  return ring_.data() + (row % y_.most()) * (row_bytes_ + kRingBehind);
}

void Resizer::Take(const uint8_t* pixels) {
  SumAcross(x_, pixels, mirror_, RowOf(taken_));
  ++taken_;
  const auto rows = static_cast<int64_t>(y_.pixels().size());
  for (; written_ < rows; ++written_) {
    const ResizeWeights::Pixel& pixel =
        y_.pixels()[static_cast<size_t>(written_)];
    if (pixel.first + pixel.count > taken_) return;
    some_.clear();
    for (int32_t i = 0; i < pixel.count; ++i) {
      some_.push_back(RowOf(pixel.first + i));
    }
    // The weight of the last row is 0 if the others are in pairs without it.
    if (pixel.count % 2 != 0) some_.push_back(some_.back());
    SumDown(y_, pixel, some_.data(), row_bytes_, rows_->Memory(written_));
    rows_->Done(written_);
  }
}

}  // namespace lockstep::internal_loader
