#include "lockstep/metrics/histogram.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace lockstep {
namespace {

// Times below 2^kBits have a bucket each. From there on, a power of two has as
// many buckets.
constexpr int kBits = 3;
constexpr size_t kEach = size_t{1} << kBits;

// Returns the number of the highest bit that is set.
int HighestBit(uint64_t value) { return 63 - __builtin_clzll(value); }

}  // namespace

size_t Histogram::BucketOf(int64_t nanoseconds) {
  if (nanoseconds < static_cast<int64_t>(kEach)) {
    return static_cast<size_t>(std::max<int64_t>(nanoseconds, 0));
  }
  const auto value = static_cast<uint64_t>(nanoseconds);
  const int power = HighestBit(value) - kBits;
  return static_cast<size_t>(power + 1) * kEach + (value >> power) - kEach;
}

double Histogram::BeginOf(size_t bucket) {
  if (bucket < kEach) return static_cast<double>(bucket);
  const auto power = static_cast<int>(bucket / kEach) - 1;
  return std::ldexp(static_cast<double>(kEach + bucket % kEach), power);
}

void Histogram::AddTo(size_t bucket, int64_t count) {
  if (bucket >= counts_.size()) counts_.resize(bucket + 1);
  counts_[bucket] += count;
  count_ += count;
}

void Histogram::Merge(const Histogram& other) {
  for (size_t i = 0; i < other.counts_.size(); ++i) {
    if (other.counts_[i] > 0) AddTo(i, other.counts_[i]);
  }
}

double Histogram::Quantile(double share) const {
  if (count_ == 0) return 0;
  const auto total = static_cast<double>(count_);
  const double rank = std::clamp(std::ceil(share * total), 1.0, total);
  size_t bucket = 0;
  auto known = static_cast<double>(counts_[0]);
  while (known < rank) known += static_cast<double>(counts_[++bucket]);
  // Buckets of one nanosecond have one time.
  const double begin = BeginOf(bucket);
  if (bucket < 2 * kEach) return begin;
  return (begin + BeginOf(bucket + 1)) / 2;
}

}  // namespace lockstep
