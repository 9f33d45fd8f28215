// Measures how much of a job's batches is padding when each row is padded to
// the longest row of its batch, or of its shard:
//
//   auto waste = MeasurePaddingWaste(order, options, lengths, /*epoch=*/0);
//   waste->share();  // 0.03: three of a hundred tokens
#ifndef LOCKSTEP_SAMPLER_PADDING_WASTE_H_
#define LOCKSTEP_SAMPLER_PADDING_WASTE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {

// The counts of one measurement.
// Thread-safety: thread-compatible.
struct PaddingWaste {
  int64_t tokens = 0;  // in all rows of all batches, with padding
  int64_t data = 0;    // in the samples

  double share() const {
    return tokens == 0
               ? 0
               : 1 - static_cast<double>(data) / static_cast<double>(tokens);
  }
};

// Reads an epoch on every rank. `lengths` holds the length of each sample of
// the dataset. Rows that the tail policy adds count as padding. The rows of an
// order that packs samples have the length that it says, and what it cuts does
// not count.
absl::StatusOr<PaddingWaste> MeasurePaddingWaste(
    const std::shared_ptr<const Order>& order, SamplerOptions options,
    absl::Span<const int64_t> lengths, int64_t epoch);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_PADDING_WASTE_H_
