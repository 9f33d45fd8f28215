// Weighted sums of pixels, rounded to bytes. Internal.
//
//   SumAcross(weights, pixels, /*mirror=*/false, row);
//
// All versions, for all processors, give the same bits: sums are integers.
#ifndef LOCKSTEP_LOADER_IMAGES_WEIGHTED_SUMS_H_
#define LOCKSTEP_LOADER_IMAGES_WEIGHTED_SUMS_H_

#include <cstdint>

#include "lockstep/base/language.h"
#include "lockstep/loader/images/resize_weights.h"

namespace lockstep::internal_loader {

// Makes the wanted pixels of a row, of 3 bytes, from one whose pixels from
// weights.begin() on are given, of 4 bytes. `mirror` turns the new row around.
// It reads up to 12 bytes behind the given pixels, and writes one byte behind
// the new row.
void SumAcross(const ResizeWeights& weights, const uint8_t* from, bool mirror,
               uint8_t* to);

// Makes `bytes` bytes of a row from `pixel.pairs` pairs of rows. It reads up to
// 32 bytes behind them.
void SumDown(const ResizeWeights& weights, const ResizeWeights::Pixel& pixel,
             const uint8_t* const* from, int64_t bytes, uint8_t* to);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_IMAGES_WEIGHTED_SUMS_H_
