#include "lockstep/sampler/padding_waste.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {
namespace {

// Returns the length of the longest one of some rows of a batch, and adds the
// lengths of their samples to `sum`.
int64_t LongestRow(const BatchIndices& batch, absl::Span<const int64_t> lengths,
                   const std::optional<Order::Packing>& packing, int64_t begin,
                   int64_t rows, int64_t& sum) {
  const int64_t last = batch.SamplesBefore(begin + rows);
  int64_t longest = packing ? packing->row_length : 0;
  for (int64_t i = batch.SamplesBefore(begin); i < last; ++i) {
    const int64_t index = batch.indices[i];
    if (index < 0) continue;
    const int64_t length =
        packing ? std::min(lengths[index], longest) : lengths[index];
    longest = std::max(longest, length);
    sum += length;
  }
  return longest;
}

}  // namespace

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
      for (const ShardRows& shard : batch.shards) {
        const int64_t data = LongestRow(batch, lengths, packing, shard.begin,
                                        shard.valid, waste.data);
        int64_t no_data = 0;
        const int64_t padding =
            LongestRow(batch, lengths, packing, shard.padding_begin,
                       shard.padding, no_data);
        waste.tokens += std::max(data, padding) * (shard.valid + shard.padding);
      }
    }
  }
  return waste;
}

}  // namespace lockstep
