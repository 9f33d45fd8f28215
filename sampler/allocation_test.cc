// After the first batch, reading batches allocates nothing.
#include <cstdint>
#include <memory>

#include "gtest/gtest.h"
#include "lockstep/base/memory_testing.h"
#include "lockstep/base/status_matchers.h"
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

TEST(Allocation, NativeOrderIsSmall) {
  EXPECT_LT(sizeof(NativePermutation), 128u);
}

}  // namespace
}  // namespace lockstep
