// Tests that the suite finds the mistakes of wrong samplers.
#include "lockstep/sampler/sampler_conformance.h"

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/findings.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns what the suite finds wrong.
std::string FindingsIn(const MakeSampler& make) {
  return FindingsOf([&] { ExpectConforms(make); });
}

absl::StatusOr<std::unique_ptr<Sampler>> Make(int64_t rank, int64_t ranks,
                                              uint64_t seed,
                                              int64_t size = 103) {
  NativeShuffleOptions shuffle;
  shuffle.size = size;
  shuffle.seed = seed;
  SamplerOptions options;
  options.rank = rank;
  options.cut.world = ranks;
  options.cut.batch_size = 5;
  return Sampler::Create(*NativeShuffle::Create(shuffle), options);
}

TEST(SamplerConformance, FindsNothingWhereAllIsWell) {
  EXPECT_THAT(FindingsIn([](int64_t rank, int64_t ranks) {
                return Make(rank, ranks, 7);
              }),
              IsEmpty());
}

TEST(SamplerConformance, FindsRanksWithSeedsOfTheirOwn) {
  const std::string findings = FindingsIn(
      [](int64_t rank, int64_t ranks) { return Make(rank, ranks, rank); });
  EXPECT_THAT(findings, HasSubstr("ranks mean different jobs"));
}

TEST(SamplerConformance, FindsASamplerOfAnotherRank) {
  const std::string findings = FindingsIn(
      [](int64_t /*rank*/, int64_t ranks) { return Make(0, ranks, 7); });
  EXPECT_THAT(findings, HasSubstr("came again"));
  EXPECT_THAT(findings, HasSubstr("are missing"));
}

TEST(SamplerConformance, FindsRanksWithOtherNumbersOfSteps) {
  const std::string findings = FindingsIn([](int64_t rank, int64_t ranks) {
    return Make(rank, ranks, 7, rank == 1 ? 53 : 103);
  });
  EXPECT_THAT(findings, HasSubstr("different numbers of steps"));
}

}  // namespace
}  // namespace lockstep
