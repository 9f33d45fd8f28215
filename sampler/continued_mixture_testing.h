// Helpers of the tests of continued mixtures.
#ifndef LOCKSTEP_SAMPLER_CONTINUED_MIXTURE_TESTING_H_
#define LOCKSTEP_SAMPLER_CONTINUED_MIXTURE_TESTING_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/language.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/continued_mixture.h"
#include "lockstep/sampler/mixture.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

using Sources = std::vector<std::shared_ptr<const Order>>;

inline constexpr int64_t kFar = int64_t{1} << 62;

inline std::shared_ptr<const Order> Native(int64_t size, uint64_t seed = 0) {
  return *NativeShuffle::Create({size, seed});
}

inline std::shared_ptr<const Order> Mix(ContinuedMixtureOptions options) {
  auto order = ContinuedMixture::Create(std::move(options));
  EXPECT_THAT(order, IsOk());
  return *order;
}

// Makes the options of a mixture with one phase.
inline ContinuedMixtureOptions Mixed(Sources sources,
                                     std::vector<double> weights,
                                     MixtureStop end, int64_t num_samples = 0) {
  ContinuedMixtureOptions options;
  options.sources = std::move(sources);
  options.phases = {{0, std::move(weights)}};
  options.end = end;
  options.num_samples = num_samples;
  return options;
}

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_CONTINUED_MIXTURE_TESTING_H_
