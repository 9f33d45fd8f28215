#include "lockstep/metrics/histogram.h"

#include <cstddef>
#include <cstdint>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST(Histogram, BucketsFollowEachOther) {
  for (size_t bucket = 0; bucket < Histogram::kMostBuckets; ++bucket) {
    const double begin = Histogram::BeginOf(bucket);
    const double end = Histogram::BeginOf(bucket + 1);
    EXPECT_LT(begin, end);
    EXPECT_LE(end - begin, bucket < 8 ? 1 : begin / 8);
    EXPECT_EQ(Histogram::BucketOf(static_cast<int64_t>(begin)), bucket);
    if (bucket + 1 == Histogram::kMostBuckets) break;
    EXPECT_EQ(Histogram::BucketOf(static_cast<int64_t>(end) - 1), bucket);
  }
  EXPECT_EQ(Histogram::BucketOf(std::numeric_limits<int64_t>::max()),
            Histogram::kMostBuckets - 1);
  EXPECT_EQ(Histogram::BucketOf(-5), 0);
}

TEST(Histogram, CountsTimes) {
  Histogram histogram;
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  for (const int64_t time : {3, 3, 0, 9, -1}) histogram.Add(time);
  EXPECT_EQ(histogram.count(), 5);
  EXPECT_THAT(histogram.buckets(), ElementsAre(2, 0, 0, 2, 0, 0, 0, 0, 0, 1));
  EXPECT_EQ(histogram.Quantile(0), 0);
  EXPECT_EQ(histogram.Quantile(0.4), 0);
  EXPECT_EQ(histogram.Quantile(0.5), 3);
  EXPECT_EQ(histogram.Quantile(1), 9);
}

TEST(Histogram, QuantilesAreNearlyRight) {
  Histogram histogram, half, other;
  for (int64_t time = 1; time <= 100'000; ++time) {
    histogram.Add(time * 1000);
    (time % 2 == 0 ? half : other).Add(time * 1000);
  }
  for (const double share : {0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    EXPECT_NEAR(histogram.Quantile(share), share * 1e8, share * 1e8 / 16);
  }
  half.Merge(other);
  EXPECT_EQ(half.buckets(), histogram.buckets());
  EXPECT_EQ(half.count(), histogram.count());
}

}  // namespace
}  // namespace lockstep
