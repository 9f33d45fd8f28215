#include "lockstep/session/shard_watch.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep::internal_session {

void ShardWatch::EndShard(bool has_weight, bool is_zero) {
  // Gradients of a shard without weight would be a mistake of another kind.
  if (!has_weight && is_zero) return;
  if (!is_last_zero_) is_on_ = false;
  is_last_zero_ = is_zero;
  ++weighed_;
}

absl::Status ShardWatch::EndStep() {
  constexpr double kLeastChance = 1e-6;
  if (is_on_ && !is_last_zero_ && weighed_ > 1) {
    ++steps_;
    chance_ /= static_cast<double>(weighed_);
  }
  is_last_zero_ = true;
  weighed_ = 0;
  if (!is_on_ || chance_ >= kLeastChance) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "in each of ", steps_,
      " steps, the gradients of this rank were 0 at the end of all shards that "
      "have rows but the last one: with gradients.exact, add the gradients of "
      "each batch in the loop over the batches of a step, and do not add up "
      "those of several batches in memory of the trainer's own"));
}

}  // namespace lockstep::internal_session
