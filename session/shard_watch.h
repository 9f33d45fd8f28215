// A ShardWatch notices a trainer that seems to add up the gradients of several
// batches in memory of its own, and to give the sum to the last one. Its step
// has the right sum, but not the same bits on any number of ranks. Internal.
//
//   ShardWatch watch;
//   ...  // in each step
//   watch.BeginStep();
//   watch.EndShard(/*has_weight=*/true, /*is_zero=*/false);
//   if (watch.EndStep()) Log("...");
#ifndef LOCKSTEP_SESSION_SHARD_WATCH_H_
#define LOCKSTEP_SESSION_SHARD_WATCH_H_

#include <cstdint>

#include "lockstep/base/language.h"

namespace lockstep::internal_session {

// Thread-safety: thread-compatible.
class ShardWatch {
 public:
  // Returns true until there is nothing more to find out.
  bool is_on() const { return is_on_; }

  void BeginStep();

  // A shard has ended. `has_weight`: it has rows, or what the trainer counts by
  // AddWeight. `is_zero`: all of its gradients are 0.
  void EndShard(bool has_weight, bool is_zero);

  // All shards of the step have ended. Returns true, once, if in each step so
  // far in which there were gradients, they came in the last shard with a
  // weight alone, and if this would be a rare chance: were each shard equally
  // likely to be the only one, less than one in a million. It is no proof,
  // since an order may deal samples in a pattern.
  bool EndStep();

  // The steps in which only the last shard had gradients.
  int64_t steps() const { return steps_; }

 private:
  bool is_on_ = true;
  int64_t looked_at_ = 0;  // steps
  int64_t steps_ = 0;
  double chance_ = 1;         // that it was so in all of them
  int64_t weighed_ = 0;       // the shards of this step that have a weight
  bool is_last_zero_ = true;  // of these, the last one
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_SHARD_WATCH_H_
