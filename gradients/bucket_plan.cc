#include "lockstep/gradients/bucket_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/base/dtype.h"

namespace lockstep::internal_gradients {
namespace {

constexpr size_t kNone = std::numeric_limits<size_t>::max();

// Returns how many of the `left` elements of a parameter come next into a
// bucket that has room for `room` elements.
int64_t CountThatFits(int64_t left, int64_t room) {
  return left <= room ? left : std::max<int64_t>(room, 0) / kBlock * kBlock;
}

}  // namespace

std::vector<BucketPlan> PlanBuckets(
    absl::Span<const PlannedParameter> parameters, int64_t most_bytes) {
  std::vector<BucketPlan> buckets;
  // The bucket of each type that is not full, and the first one of the type.
  std::vector<size_t> open(256, kNone), first_of_type(256, kNone);
  const auto first_of = [&](DType dtype) -> size_t& {
    return first_of_type[static_cast<uint8_t>(dtype)];
  };
  for (const PlannedParameter& parameter : parameters) {
    const int64_t size = SizeOf(parameter.dtype);
    const int64_t most = most_bytes == 0 ? std::numeric_limits<int64_t>::max()
                                         : most_bytes / size;
    size_t& at = open[static_cast<uint8_t>(parameter.dtype)];
    if (parameter.begins_bucket) at = kNone;
    int64_t first = 0;
    while (first < parameter.count) {
      if (at == kNone) {
        at = buckets.size();
        first_of(parameter.dtype) = std::min(first_of(parameter.dtype), at);
        buckets.push_back({parameter.dtype, 0, {}});
      }
      BucketPlan& bucket = buckets[at];
      const int64_t offset = RoundUp(bucket.count, kAlignment / size);
      const int64_t count =
          CountThatFits(parameter.count - first, most - offset);
      if (count == 0) {
        at = kNone;
        continue;
      }
      bucket.pieces.push_back({parameter.parameter, first, count, offset});
      bucket.count = offset + count;
      first += count;
    }
  }
  std::stable_sort(buckets.begin(), buckets.end(),
                   [&](const BucketPlan& a, const BucketPlan& b) {
                     return first_of(a.dtype) < first_of(b.dtype);
                   });
  return buckets;
}

}  // namespace lockstep::internal_gradients
