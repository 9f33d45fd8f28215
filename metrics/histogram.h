// A Histogram counts times in buckets, of which there are eight to each power
// of two. So a quantile is wrong by at most a sixteenth. Below 16 ns it is
// exact.
//
//   Histogram histogram;
//   histogram.Add(1'200);  // nanoseconds
//   ...
//   const double p99 = histogram.Quantile(0.99);
#ifndef LOCKSTEP_METRICS_HISTOGRAM_H_
#define LOCKSTEP_METRICS_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Thread-safety: thread-compatible.
class Histogram {
 public:
  // The number of buckets that any times can need.
  static constexpr size_t kMostBuckets = 488;

  // Counts a time in nanoseconds. A time below 0 counts as 0.
  void Add(int64_t nanoseconds) { AddTo(BucketOf(nanoseconds), 1); }

  // Counts `count` more times in a bucket.
  // Requires: bucket < kMostBuckets.
  void AddTo(size_t bucket, int64_t count);

  void Merge(const Histogram& other);

  int64_t count() const { return count_; }

  // Returns the time that this share of all times does not exceed: about the
  // least one for 0, and the greatest one for 1. It is the middle of that
  // time's bucket. Returns 0 if there is no time.
  double Quantile(double share) const;

  // Returns the count of each bucket. Those behind the last one are empty.
  absl::Span<const int64_t> buckets() const { return counts_; }

  // Returns the bucket of a time, and the least time of a bucket. The bucket
  // behind the last one has the end of that one.
  static size_t BucketOf(int64_t nanoseconds);
  static double BeginOf(size_t bucket);

 private:
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_METRICS_HISTOGRAM_H_
