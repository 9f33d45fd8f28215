// A plan of buckets says which elements of a model's gradients travel in which
// collective. It is arithmetic: a function of the parameters' sizes and types,
// and of the most bytes of a bucket. So all ranks make the same plan, on any
// machine and in any step. Internal.
//
//   const std::vector<BucketPlan> plan = PlanBuckets(
//       {{/*parameter=*/0, DType::kF32, 1000}, {1, DType::kF32, 70}},
//       /*most_bytes=*/0);
//   // One bucket of 1078 elements: parameter 0 at 0, parameter 1 at 1008.
//
// Its rules:
//   - A bucket has elements of one type, and the buckets of a type follow each
//     other. Parameters of a type follow each other in their order, each at a
//     multiple of 64 bytes of its bucket.
//   - No bucket has more than `most_bytes`. A parameter that does not fit into
//     the rest of a bucket is split, but only at multiples of kBlock elements,
//     counted within the parameter. So the blocks over which a norm is made are
//     never split, whatever `most_bytes` is.
//   - A bucket also ends where a parameter does not travel. So the others stay
//     in place, if all of them would be.
//   - Elements between two parameters belong to none. They are 0 on all ranks.
#ifndef LOCKSTEP_GRADIENTS_BUCKET_PLAN_H_
#define LOCKSTEP_GRADIENTS_BUCKET_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_gradients {

// The elements of a block.
constexpr int64_t kBlock = 4096;

// Parameters begin at multiples of this number of bytes.
constexpr int64_t kAlignment = 64;

// The most bytes of a bucket are a multiple of this, which is a block of the
// largest type.
constexpr int64_t kBucketUnit = kBlock * 8;

inline int64_t RoundUp(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// One parameter that travels.
struct PlannedParameter {
  int64_t parameter = 0;      // its number
  DType dtype = DType::kF32;  // in which its gradient travels
  int64_t count = 0;          // of elements
  // True if it begins a bucket, since a parameter before it does not travel.
  bool begins_bucket = false;
};

// Consecutive elements of a parameter.
struct Piece {
  int64_t parameter = 0;
  int64_t first = 0;   // the first element, a multiple of kBlock
  int64_t count = 0;   // 1 or more
  int64_t offset = 0;  // in the bucket, in elements
};

struct BucketPlan {
  DType dtype = DType::kF32;
  int64_t count = 0;  // of elements, including those between parameters
  std::vector<Piece> pieces;
};

// Returns the plan. Parameters without elements are in no bucket.
// Requires: `most_bytes` is 0, for one bucket a type, or a multiple of
// kBucketUnit.
std::vector<BucketPlan> PlanBuckets(
    absl::Span<const PlannedParameter> parameters, int64_t most_bytes);

}  // namespace lockstep::internal_gradients

#endif  // LOCKSTEP_GRADIENTS_BUCKET_PLAN_H_
