// This file has the parts of Gradients for steps in shards, whose sums have the
// same bits on any number of ranks.
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/shard_tree.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gradients/arithmetic.h"
#include "lockstep/gradients/exact_sum.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/gradients/reducer.h"

namespace lockstep {

ShardRange Gradients::shards() const {
  return exact_ == nullptr ? ShardRange() : exact_->own();
}

absl::Status Gradients::CheckParts(int parts) const {
  if (exact_ == nullptr || parts % exact_->most() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a step has ", parts, parts == 1 ? " part" : " parts",
      ", and should have a multiple of ", exact_->most(),
      ", which are the most shards that a rank has of ", options_.shards,
      ": pass the number of the batches' parts, if the loader has the same "
      "shards"));
}

absl::Status Gradients::CheckSums(const StepInput& input) const {
  if (exact_ == nullptr ||
      input.sums.size() % static_cast<size_t>(exact_->count()) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there are ", input.sums.size(),
                   " sums, and there should be as many for each of the ",
                   exact_->count(), " shards of this rank"));
}

// Adds the gradients of a shard to those of the shards before, if this part is
// its last one. Those of the last shard are added when their buckets travel.
absl::Status Gradients::EndShard() {
  const int64_t parts_of_shard = parts_ / exact_->most();
  const int64_t shard = part_ / parts_of_shard;
  if (shard < exact_->count()) {
    const bool ends = (part_ + 1) % parts_of_shard == 0;
    if (!ends || part_ + 1 == parts_) return absl::OkStatus();
    return reducer_->AddShard(options_.find_culprit);
  }
  for (size_t i = 0; i < views_.size(); ++i) {
    const Buffer& gradient = views_[i].gradient;
    if (frozen_[i] || internal_gradients::AllAreZero(
                          gradient.dtype, gradient.data, gradient.count)) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "the gradient of parameter '", views_[i].name,
        "' is not 0 at the end "
        "of part ",
        part_,
        ", in which this rank has no shard: add what rows "
        "give in the part of their shard (Batch::shard), and nothing in parts "
        "without rows"));
  }
  return absl::OkStatus();
}

// Begins a step for which this rank has no data.
absl::Status Gradients::PassShards() {
  const auto parts = static_cast<int>(exact_->most());
  LOCKSTEP_RETURN_IF_ERROR(BeginStep(parts));
  for (int part = 0; part < parts; ++part) {
    LOCKSTEP_RETURN_IF_ERROR(BeginPart(part));
  }
  return absl::OkStatus();
}

}  // namespace lockstep
