#include "lockstep/sampler/mixture.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/order_conformance.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

MixtureOptions RandomOptions(Random& random) {
  MixtureOptions options;
  for (int64_t i = random.Integer(1, 6); i > 0; --i) {
    options.sources.push_back({random.Integer(1, 60), random.Integer(0, 10)});
  }
  options.sources.push_back({random.Integer(1, 60), random.Integer(1, 10)});
  options.seed = random();
  options.stop = static_cast<MixtureStop>(random.Below(3));
  options.num_samples = random.Integer(1, 400);
  return options;
}

int64_t SourceOf(const MixtureOptions& options, int64_t index) {
  int64_t source = 0;
  while (index >= options.sources[source].size) {
    index -= options.sources[source++].size;
  }
  return source;
}

TEST(MixtureOrder, KeepsProportionsAndPasses) {
  Random random(1);
  for (int round = 0; round < 1000; ++round) {
    const MixtureOptions options = RandomOptions(random);
    int64_t total = 0;
    for (const auto& source : options.sources) total += source.weight;
    const std::vector<int64_t> indices =
        ReadEpoch(**MixtureOrder::Create(options), round);
    std::vector<int64_t> counts(options.sources.size());
    std::map<int64_t, int64_t> times;
    for (size_t n = 1; n <= indices.size(); ++n) {
      const int64_t source = SourceOf(options, indices[n - 1]);
      // A sample comes for the k-th time in the k-th pass of its source.
      ASSERT_EQ(times[indices[n - 1]]++,
                counts[source] / options.sources[source].size);
      ++counts[source];
      for (size_t i = 0; i < counts.size(); ++i) {
        ASSERT_LT(std::abs(counts[i] * total -
                           options.sources[i].weight * static_cast<int64_t>(n)),
                  total);
      }
    }
    bool all = true, one_more = false;
    for (size_t i = 0; i < counts.size(); ++i) {
      const auto& source = options.sources[i];
      if (source.weight == 0) continue;
      all &= counts[i] >= source.size;
      one_more |= counts[i] == source.size;
      if (options.stop == MixtureStop::kFirstExhausted) {
        ASSERT_LE(counts[i], source.size);
      }
    }
    switch (options.stop) {
      case MixtureStop::kFirstExhausted:
        ASSERT_TRUE(one_more);
        break;
      case MixtureStop::kAllExhausted:
        ASSERT_TRUE(all);
        ASSERT_TRUE(one_more);  // it stops when the last source has ended
        break;
      case MixtureStop::kNumSamples:
        ASSERT_EQ(static_cast<int64_t>(indices.size()), options.num_samples);
        break;
    }
  }
}

// A rank's share of a full step is within 2 of p * B.
TEST(MixtureOrder, RanksGetTheirProportion) {
  MixtureOptions mixture;
  mixture.sources = {{5000, 5}, {300, 3}, {100, 1}, {0, 0}};
  mixture.stop = MixtureStop::kNumSamples;
  mixture.num_samples = 5000;
  const auto order = *MixtureOrder::Create(mixture);
  for (int64_t world = 2; world <= 64; ++world) {
    SamplerOptions options;
    options.cut.batch_size = 1 + world % 17;
    options.cut.world = world;
    options.cut.layout = Layout::kBlocked;
    for (options.rank = 0; options.rank < world; options.rank += 5) {
      const auto sampler = *Sampler::Create(order, options);
      LOCKSTEP_ASSERT_OK(sampler->StartEpoch(0));
      BatchIndices batch;
      while (*sampler->Next(batch) && batch.valid == options.cut.batch_size) {
        double counts[4] = {};
        for (const int64_t index : batch.indices) {
          ++counts[SourceOf(mixture, index)];
        }
        for (int i = 0; i < 4; ++i) {
          const double share = mixture.sources[i].weight / 9.0;
          ASSERT_LT(std::abs(counts[i] - share * batch.valid), 2);
        }
      }
    }
  }
}

TEST(MixtureOrder, Conforms) {
  Random random(2);
  for (int round = 0; round < 100; ++round) {
    const auto order = *MixtureOrder::Create(RandomOptions(random));
    ExpectConforms(*order, round);
    EXPECT_TRUE(order->NeedsBlockedLayout());
  }
}

TEST(MixtureOrder, SaysWhatIsWrong) {
  MixtureOptions options;
  EXPECT_THAT(
      MixtureOrder::Create(options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("add up to 0")));
  options.sources = {{10, 1}, {0, 1}};
  EXPECT_THAT(MixtureOrder::Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("source 1: a weight is from 0 to 2^20, and 0 "
                                 "where there are no samples")));
  options.sources = {{int64_t{1} << 62, 1}, {int64_t{1} << 62, 1}};
  EXPECT_THAT(MixtureOrder::Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("add up to 2^62 at most")));
  options.sources = {{10, -1}};
  EXPECT_THAT(
      MixtureOrder::Create(options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("weight=-1")));
  options.sources = {{10, 1}};
  options.stop = MixtureStop::kNumSamples;
  EXPECT_THAT(
      MixtureOrder::Create(options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_samples=0")));
}

}  // namespace
}  // namespace lockstep
