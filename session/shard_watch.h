// A ShardWatch finds a trainer that adds up the gradients of several batches in
// memory of its own, and gives the sum to the last one. Its step has the right
// sum, but not the same bits on any number of ranks. Internal.
//
//   ShardWatch watch;
//   ...  // in each step
//   watch.EndShard(/*has_weight=*/true, /*is_zero=*/false);
//   LOCKSTEP_RETURN_IF_ERROR(watch.EndStep());
#ifndef LOCKSTEP_SESSION_SHARD_WATCH_H_
#define LOCKSTEP_SESSION_SHARD_WATCH_H_

#include <cstdint>

#include "absl/status/status.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_session {

// Thread-safety: thread-compatible.
class ShardWatch {
 public:
  // Returns true until it is known that the trainer adds up nothing itself.
  bool is_on() const { return is_on_; }

  // A shard has ended. `has_weight`: it has rows, or what the trainer counts by
  // AddWeight. `is_zero`: all of its gradients are 0.
  void EndShard(bool has_weight, bool is_zero);

  // All shards of the step have ended.
  //   FAILED_PRECONDITION  in each step so far in which there were gradients,
  //                        they came in the last shard with a weight alone, and
  //                        this is no chance: if each shard is equally likely
  //                        to be the only one, there is less than one chance in
  //                        a million
  absl::Status EndStep();

 private:
  bool is_on_ = true;
  int64_t steps_ = 0;         // in which only the last shard had gradients
  double chance_ = 1;         // that it was so in all of them
  int64_t weighed_ = 0;       // the shards of this step that have a weight
  bool is_last_zero_ = true;  // of these, the last one
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_SHARD_WATCH_H_
