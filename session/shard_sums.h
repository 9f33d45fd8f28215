// ShardSums keeps the sums of a step or of an evaluation for each shard of this
// rank, as the ranks add them up for the same bits on any number of ranks
// (GradientsOptions::shards). Internal.
//
//   ShardSums sums({8, 16});  // of the shards of this rank
//   for (const Batch& batch : step) {
//     sums.part().Add("loss", loss);
//     LOCKSTEP_RETURN_IF_ERROR(sums.EndPart(batch.shard()));
//   }
//   std::vector<double> numbers;
//   for (int64_t i = 0; i < sums.shards(); ++i) sums.AppendTo(i, numbers);
#ifndef LOCKSTEP_SESSION_SHARD_SUMS_H_
#define LOCKSTEP_SESSION_SHARD_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/base/shard_tree.h"
#include "lockstep/session/sums.h"

namespace lockstep::internal_session {

// Thread-safety: thread-compatible.
class ShardSums {
 public:
  // `own` are the shards of this rank. If there are none, the steps have no
  // shards, and all sums of this rank are kept as one.
  explicit ShardSums(const ShardRange& own) : own_(own) {}

  // Sets all sums to 0, and keeps their names.
  void Clear();

  // The sums of the present part or, without shards, of all parts.
  Sums& part() { return part_; }
  const Sums& part() const { return part_; }

  // Adds the sums of the part to those of its shard, which is -1 for an empty
  // part. Without shards, it does nothing.
  //   FAILED_PRECONDITION  a sum of an empty part is not 0, or the shard is
  //                        another rank's
  //   and the errors of the part's Sums
  absl::Status EndPart(int64_t shard);

  // Returns the number of the shards of this rank, or 1.
  int64_t shards() const;

  // Appends the sums of the shard with this place among those of the rank, and
  // then the weights of those sums that have one.
  // Requires: EndPart was called for all parts.
  void AppendTo(int64_t place, std::vector<double>& numbers) const;

 private:
  // One sum of all shards of this rank.
  struct OfShards {
    std::vector<double> values, weights;
  };

  const ShardRange own_;
  Sums part_;
  std::vector<OfShards> sums_;  // in the order of part_.values()
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_SHARD_SUMS_H_
