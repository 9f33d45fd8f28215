#include "lockstep/session/shard_watch.h"

#include <cstdint>

namespace lockstep::internal_session {
namespace {

constexpr double kLeastChance = 1e-6;

// Looking at gradients that are 0 takes a pass over them, so it has an end.
constexpr int64_t kMostSteps = 100;

}  // namespace

void ShardWatch::BeginStep() {
  weighed_ = 0;
  is_last_zero_ = true;
}

void ShardWatch::EndShard(bool has_weight, bool is_zero) {
  // Gradients of a shard without weight would be a mistake of another kind.
  if (!has_weight && is_zero) return;
  if (!is_last_zero_) is_on_ = false;
  is_last_zero_ = is_zero;
  ++weighed_;
}

bool ShardWatch::EndStep() {
  if (!is_on_) return false;
  if (!is_last_zero_ && weighed_ > 1) {
    ++steps_;
    chance_ /= static_cast<double>(weighed_);
  }
  const bool is_rare = chance_ < kLeastChance;
  is_on_ = !is_rare && ++looked_at_ < kMostSteps;
  return is_rare;
}

}  // namespace lockstep::internal_session
