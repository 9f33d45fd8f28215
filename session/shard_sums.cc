#include "lockstep/session/shard_sums.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/session/sums.h"

namespace lockstep::internal_session {

void ShardSums::Clear() {
  part_.Clear();
  for (OfShards& sum : sums_) {
    std::fill(sum.values.begin(), sum.values.end(), 0.0);
    std::fill(sum.weights.begin(), sum.weights.end(), 0.0);
  }
}

absl::Status ShardSums::EndPart(int64_t shard) {
  if (own_.begin == own_.end) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(part_.status());
  if (shard >= own_.end || (shard >= 0 && shard < own_.begin)) {
    return absl::FailedPreconditionError(
        absl::StrCat("a batch is of shard ", shard,
                     ", and this rank has the shards ", own_.begin, " to ",
                     own_.end - 1, ": its loader deals them to other ranks"));
  }
  const size_t count = part_.values().size();
  while (sums_.size() < count) {
    const std::vector<double> none(static_cast<size_t>(shards()));
    sums_.push_back({none, none});
  }
  for (size_t i = 0; i < count; ++i) {
    const double value = part_.values()[i].value;
    const double weight = part_.weights()[i].value_or(0);
    if (shard >= 0) {
      const auto place = static_cast<size_t>(shard - own_.begin);
      sums_[i].values[place] += value;
      sums_[i].weights[place] += weight;
    } else if (value != 0 || weight != 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the sum '", absl::CHexEscape(part_.values()[i].name), "' got ",
          value, weight != 0 ? absl::StrCat(" by the weight ", weight) : "",
          " from a batch without rows (Batch::shard is -1), of which there are "
          "more or fewer on another number of ranks: with gradients.exact, add "
          "what rows give"));
    }
  }
  part_.Clear();
  return absl::OkStatus();
}

int64_t ShardSums::shards() const {
  return std::max<int64_t>(1, own_.end - own_.begin);
}

void ShardSums::AppendTo(int64_t place, std::vector<double>& numbers) const {
  const size_t count = part_.values().size();
  const bool has_shards = own_.begin < own_.end;
  const auto at = static_cast<size_t>(place);
  for (size_t i = 0; i < count; ++i) {
    numbers.push_back(has_shards ? sums_[i].values[at]
                                 : part_.values()[i].value);
  }
  for (size_t i = 0; i < count; ++i) {
    if (!part_.weights()[i].has_value()) continue;
    numbers.push_back(has_shards ? sums_[i].weights[at] : *part_.weights()[i]);
  }
}

}  // namespace lockstep::internal_session
