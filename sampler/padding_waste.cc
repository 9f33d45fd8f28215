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
  const auto packing = order->packing();
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
      int64_t longest = packing ? packing->row_length : 0;
      for (size_t i = 0; i < batch.indices.size(); ++i) {
        const int64_t index = batch.indices[i];
        if (index < 0) continue;
        const int64_t length =
            packing ? std::min(lengths[index], longest) : lengths[index];
        longest = std::max(longest, length);
        if (static_cast<int64_t>(i) < batch.samples()) waste.data += length;
      }
      waste.tokens += longest * batch.rows();
    }
  }
  return waste;
}

}  // namespace lockstep
