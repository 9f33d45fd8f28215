#include "lockstep/sampler/padding_waste.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "lockstep/base/status_macros.h"

namespace lockstep {

absl::StatusOr<PaddingWaste> MeasurePaddingWaste(
    const std::shared_ptr<const Order>& order, SamplerOptions options,
    absl::Span<const int64_t> lengths, int64_t epoch) {
  PaddingWaste waste;
  for (options.rank = 0; options.rank < options.cut.world * options.replicas;
       ++options.rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto sampler,
                              Sampler::Create(order, options));
    LOCKSTEP_RETURN_IF_ERROR(sampler->StartEpoch(epoch));
    BatchIndices batch;
    while (true) {
      LOCKSTEP_ASSIGN_OR_RETURN(const bool more, sampler->Next(batch));
      if (!more) break;
      int64_t longest = 0;
      for (size_t row = 0; row < batch.indices.size(); ++row) {
        const int64_t index = batch.indices[row];
        if (index < 0) continue;
        longest = std::max(longest, lengths[index]);
        if (static_cast<int64_t>(row) < batch.valid) {
          waste.data += lengths[index];
        }
      }
      waste.tokens += longest * static_cast<int64_t>(batch.indices.size());
    }
  }
  return waste;
}

}  // namespace lockstep
