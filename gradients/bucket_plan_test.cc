#include "lockstep/gradients/bucket_plan.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/random.h"

namespace lockstep::internal_gradients {
namespace {

std::vector<PlannedParameter> ParametersOf(const std::vector<int64_t>& counts,
                                           DType dtype = DType::kF32) {
  std::vector<PlannedParameter> parameters;
  for (const int64_t count : counts) {
    parameters.push_back(
        {static_cast<int64_t>(parameters.size()), dtype, count});
  }
  return parameters;
}

// Checks the rules of bucket_plan.h.
void CheckPlan(const std::vector<PlannedParameter>& parameters,
               int64_t most_bytes) {
  const std::vector<BucketPlan> plan = PlanBuckets(parameters, most_bytes);
  std::map<int64_t, int64_t> seen;  // how many elements of each parameter
  for (const BucketPlan& bucket : plan) {
    const int64_t size = SizeOf(bucket.dtype);
    EXPECT_TRUE(most_bytes == 0 || bucket.count * size <= most_bytes);
    ASSERT_FALSE(bucket.pieces.empty());
    int64_t end = 0;
    for (const Piece& piece : bucket.pieces) {
      const PlannedParameter& parameter = parameters[piece.parameter];
      EXPECT_EQ(parameter.dtype, bucket.dtype);
      EXPECT_EQ(piece.first, seen[piece.parameter]) << "twice, or left out";
      EXPECT_EQ(piece.first % kBlock, 0);
      EXPECT_GE(piece.count, 1);
      EXPECT_EQ(piece.offset * size % kAlignment, 0);
      EXPECT_GE(piece.offset, end);
      EXPECT_LT((piece.offset - end) * size, kAlignment);
      end = piece.offset + piece.count;
      seen[piece.parameter] += piece.count;
    }
    EXPECT_EQ(end, bucket.count);
  }
  for (const PlannedParameter& parameter : parameters) {
    EXPECT_EQ(seen[parameter.parameter], parameter.count);
  }
}

TEST(BucketPlan, WithoutACapThereIsOneBucketAType) {
  std::vector<PlannedParameter> parameters = ParametersOf({1000, 70, 5});
  parameters[1].dtype = DType::kF64;
  const std::vector<BucketPlan> plan = PlanBuckets(parameters, 0);
  ASSERT_EQ(plan.size(), 2);
  EXPECT_EQ(plan[0].dtype, DType::kF32);
  EXPECT_EQ(plan[0].count, 1013);  // parameter 2 begins at 1008
  EXPECT_EQ(plan[1].dtype, DType::kF64);
  EXPECT_EQ(plan[1].count, 70);
}

TEST(BucketPlan, NoBucketIsAboveItsCap) {
  // Others never split a parameter, so one of 1 GB makes a bucket of 1 GB.
  const int64_t most_bytes = 25 << 20;
  const int64_t gigabyte = 1'000'000'000;
  const std::vector<BucketPlan> plan =
      PlanBuckets(ParametersOf({gigabyte / 4}), most_bytes);
  EXPECT_EQ(plan.size(), (gigabyte + most_bytes - 1) / most_bytes);
  CheckPlan(ParametersOf({gigabyte / 4}), most_bytes);
}

TEST(BucketPlan, ParametersOfAnySizesAndTypesFollowTheRules) {
  Random random(1);
  const DType dtypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
  for (int run = 0; run < 300; ++run) {
    std::vector<PlannedParameter> parameters;
    const int64_t count = random.Below(20);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t most = int64_t{1} << random.Below(18);
      parameters.push_back({i, dtypes[random.Below(4)],
                            static_cast<int64_t>(random.Below(most))});
    }
    CheckPlan(parameters, 0);
    CheckPlan(parameters, kBucketUnit * (1 + random.Below(4)));
  }
}

TEST(BucketPlan, ParametersWithoutElementsAreInNoBucket) {
  EXPECT_TRUE(PlanBuckets({}, 0).empty());
  EXPECT_TRUE(PlanBuckets(ParametersOf({0, 0}), kBucketUnit).empty());
  CheckPlan(ParametersOf({0, 3, 0}), kBucketUnit);
}

TEST(BucketPlan, ATensorThatFillsABucketEndsIt) {
  // The next parameter begins at the first element of the next bucket.
  const std::vector<BucketPlan> plan =
      PlanBuckets(ParametersOf({kBucketUnit / 4, 1}), kBucketUnit);
  ASSERT_EQ(plan.size(), 2);
  EXPECT_EQ(plan[1].pieces[0].offset, 0);
}

TEST(BucketPlan, AModelOfTenThousandTensorsHasAPlan) {
  const std::vector<PlannedParameter> parameters =
      ParametersOf(std::vector<int64_t>(10'000, 100'000));
  CheckPlan(parameters, 25 << 20);
}

}  // namespace
}  // namespace lockstep::internal_gradients
