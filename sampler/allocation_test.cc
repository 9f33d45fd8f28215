// After the first batch, reading batches allocates nothing.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/memory_testing.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/continued_mixture.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/torch_shuffle.h"

namespace lockstep {
namespace {

void ExpectNoAllocation(const std::shared_ptr<const Order>& order) {
  SamplerOptions options;
  options.cut.batch_size = 64;
  options.cut.world = 4;
  const auto sampler = *Sampler::Create(order, options);
  LOCKSTEP_ASSERT_OK(sampler->StartEpoch(0));
  BatchIndices batch;
  ASSERT_TRUE(*sampler->Next(batch));
  const int64_t before = Allocations();
  int64_t steps = 0;
  while (*sampler->Next(batch)) ++steps;
  EXPECT_EQ(Allocations() - before, 0) << order->Describe().ToString();
  EXPECT_GT(steps, 1000);
}

TEST(Allocation, NoneInSteadyState) {
  ExpectNoAllocation(*SequentialOrder::Create(300000));
  NativeShuffleOptions native;
  native.size = 300001;
  ExpectNoAllocation(*NativeShuffle::Create(native));
  TorchShuffleOptions torch;
  torch.size = 300002;
  ExpectNoAllocation(*TorchShuffle::Create(torch));
}

// A mixture has nothing to allocate until a source begins anew, even if a
// source first comes after many batches.
TEST(Allocation, NoneInAMixtureOnceItIsPrepared) {
  ContinuedMixtureOptions mixture;
  for (int64_t i = 0; i < 9; ++i) {
    mixture.sources.push_back(*NativeShuffle::Create({1000000, 7}));
  }
  mixture.phases = {
      {0, {0.5, 0.2, 0.1, 0.1, 0.09, 0.005, 0.004, 0.0009, 0.0001}}};
  mixture.end = MixtureStop::kNumSamples;
  mixture.num_samples = 300003;
  const std::shared_ptr<const Order> order = *ContinuedMixture::Create(mixture);
  SamplerOptions options;
  options.cut.batch_size = 64;
  options.cut.world = 4;
  options.cut.layout = Layout::kBlocked;
  const auto sampler = *Sampler::Create(order, options);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    auto stream = *order->Open(epoch);
    LOCKSTEP_ASSERT_OK(stream->Prepare());
    LOCKSTEP_ASSERT_OK(sampler->StartEpoch(epoch, std::move(stream)));
    BatchIndices batch;
    const int64_t before = Allocations();
    while (*sampler->Next(batch)) continue;
    EXPECT_EQ(Allocations() - before, 0);
  }
}

TEST(Allocation, NativeOrderIsSmall) {
  EXPECT_LT(sizeof(NativePermutation), 128u);
}

}  // namespace
}  // namespace lockstep
