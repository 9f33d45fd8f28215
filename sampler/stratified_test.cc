// Tests the stratified order, and the quota rule that it shares with mixtures.
#include "lockstep/sampler/stratified.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/order_conformance.h"
#include "lockstep/sampler/quota.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// |count - p * n| < 1 for every prefix, and a whole round is exact.
TEST(QuotaTurns, KeepTheQuotaRule) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> quotas(random.Integer(1, 12));
    int64_t total = 0;
    for (int64_t& quota : quotas) {
      total += quota = random.Integer(0, int64_t{1} << random.Below(8));
    }
    if (total == 0) total += ++quotas[0];
    QuotaTurns turns(quotas);
    std::vector<int64_t> counts(quotas.size());
    for (int64_t n = 1; n <= 2 * total; ++n) {
      ++counts[turns.Next()];
      for (size_t i = 0; i < quotas.size(); ++i) {
        ASSERT_LT(std::abs(counts[i] * total - quotas[i] * n), total) << n;
      }
      if (n == total) {
        ASSERT_EQ(counts, quotas);
      }
    }
  }
}

std::vector<int64_t> RandomLabels(Random& random, int64_t size) {
  std::vector<int64_t> labels(size);
  const int64_t classes = random.Integer(1, 8);
  for (int64_t& label : labels) {
    // The labels are skewed, so that some classes are rare.
    label = 10 * random.Integer(0, random.Integer(1, classes + 1)) - 5;
  }
  return labels;
}

std::shared_ptr<const Order> Stratified(const std::vector<int64_t>& labels) {
  StratifiedOptions options;
  options.labels = labels;
  return *StratifiedOrder::Create(options);
}

TEST(StratifiedOrder, EveryPrefixIsInProportion) {
  Random random(2);
  for (int round = 0; round < 300; ++round) {
    const std::vector<int64_t> labels =
        RandomLabels(random, random.Integer(1, 300));
    std::map<int64_t, int64_t> totals, counts;
    for (const int64_t label : labels) ++totals[label];
    const std::vector<int64_t> indices = ReadEpoch(*Stratified(labels), round);
    const auto size = static_cast<int64_t>(indices.size());
    for (int64_t n = 1; n <= size; ++n) {
      ++counts[labels[indices[n - 1]]];
      for (const auto& [label, total] : totals) {
        ASSERT_LT(std::abs(counts[label] * size - total * n), size);
      }
    }
    std::vector<int64_t> sorted = indices;
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end());
  }
}

// A rank's share of a full step is within 2 of p * B.
TEST(StratifiedOrder, RanksGetTheirProportion) {
  Random random(3);
  for (int64_t world = 2; world <= 64; ++world) {
    const std::vector<int64_t> labels = RandomLabels(random, 3000);
    std::map<int64_t, double> shares;
    for (const int64_t label : labels) shares[label] += 1 / 3000.0;
    SamplerOptions options;
    options.cut.batch_size = random.Integer(1, 20);
    options.cut.world = world;
    options.cut.layout = Layout::kBlocked;
    const auto order = Stratified(labels);
    for (options.rank = 0; options.rank < world; options.rank += 7) {
      const auto sampler = *Sampler::Create(order, options);
      LOCKSTEP_ASSERT_OK(sampler->StartEpoch(0));
      BatchIndices batch;
      while (*sampler->Next(batch) && batch.valid == options.cut.batch_size) {
        std::map<int64_t, int64_t> counts;
        for (const int64_t index : batch.indices) ++counts[labels[index]];
        for (const auto& [label, share] : shares) {
          ASSERT_LT(std::abs(counts[label] - share * batch.valid), 2);
        }
      }
    }
  }
}

TEST(StratifiedOrder, RefusesTheStridedLayout) {
  SamplerOptions options;
  options.cut.world = 2;
  EXPECT_THAT(Sampler::Create(Stratified({1, 2, 1, 2}), options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("needs Layout::kBlocked")));
}

TEST(StratifiedOrder, Conforms) {
  Random random(4);
  for (const int64_t size : {0, 1, 2, 100, 333}) {
    ExpectConforms(*Stratified(RandomLabels(random, size)), size);
  }
}

}  // namespace
}  // namespace lockstep
