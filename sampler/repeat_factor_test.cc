#include "lockstep/sampler/repeat_factor.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/order_conformance.h"

namespace lockstep {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RepeatFactorOrder, RepeatsByTheFactors) {
  RepeatFactorOptions options;
  options.factors = {0, 1, 2, 0.25, 2.5};
  const auto order = *RepeatFactorOrder::Create(options);
  constexpr int kEpochs = 4000;
  std::vector<int64_t> counts(5);
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    std::vector<int64_t> now(5);
    for (const int64_t index : ReadEpoch(*order, epoch)) ++now[index];
    for (size_t i = 0; i < now.size(); ++i) {
      ASSERT_LT(std::abs(now[i] - options.factors[i]), 1);
      counts[i] += now[i];
    }
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    EXPECT_NEAR(counts[i], kEpochs * options.factors[i], 160);
  }
  for (const int64_t epoch : {0, 1, 2}) ExpectConforms(*order, epoch);
}

TEST(RepeatFactorOrder, FactorsFromClasses) {
  // Class 0 is in all four samples, and class 1 is in one of them.
  EXPECT_THAT(RepeatFactorsFromClasses({{0}, {0, 1, 1}, {0}, {0}}, 0.64),
              ElementsAre(1, DoubleEq(1.6), 1, 1));
  EXPECT_THAT(RepeatFactorsFromClasses({{}, {5}}, 2), ElementsAre(1, 2));
}

TEST(RepeatFactorOrder, SaysWhatIsWrong) {
  for (const double factor : {-1.0, 1e30, std::nan("")}) {
    RepeatFactorOptions options;
    options.factors = {1, factor};
    EXPECT_THAT(
        RepeatFactorOrder::Create(options),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("factors[1]")));
  }
}

}  // namespace
}  // namespace lockstep
