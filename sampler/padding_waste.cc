#include "lockstep/sampler/padding_waste.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {

absl::StatusOr<PaddingWaste> MeasurePaddingWaste(
    const std::shared_ptr<const Order>& order, SamplerOptions options,
    absl::Span<const int64_t> lengths, int64_t epoch) {
  options.rank = 0;
  LOCKSTEP_RETURN_IF_ERROR(Sampler::Create(order, options).status());
  const int64_t size = order->Describe().size;
  if (static_cast<int64_t>(lengths.size()) != size) {
    return absl::InvalidArgumentError(absl::StrCat("the order walks ", size,
                                                   " samples, but there are ",
                                                   lengths.size(), " lengths"));
  }
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
