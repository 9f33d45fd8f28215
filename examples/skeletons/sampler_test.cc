// A sampler with your own name is a factory, which chooses an order and how it
// is cut and dealt. This one uses only the first half of the samples, as a
// training does that begins with easy samples.
#include "lockstep/sampler/sampler.h"

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sampler_conformance.h"
#include "lockstep/sampler/wrapped_orders.h"

namespace {

using lockstep::PluginContext;
using lockstep::Sampler;

struct EasyOptions {
  uint64_t seed = 0;
  int64_t rank_batch_size = 8;
};
void BindOptions(EasyOptions& options, lockstep::OptionTable& table) {
  table.Add("seed", &options.seed, "Tells one order from another.");
  table.Add("rank_batch_size", &options.rank_batch_size, "Rows of a rank.");
}

absl::StatusOr<std::unique_ptr<Sampler>> MakeEasy(const PluginContext& context,
                                                  const EasyOptions& options) {
  if (context.dataset == nullptr) {
    return absl::FailedPreconditionError("the sampler easy needs a dataset");
  }
  std::vector<int64_t> easy(context.dataset->size() / 2);
  std::iota(easy.begin(), easy.end(), 0);
  lockstep::NativeShuffleOptions shuffle;
  shuffle.size = static_cast<int64_t>(easy.size());
  shuffle.seed = options.seed;
  LOCKSTEP_ASSIGN_OR_RETURN(auto shuffled,
                            lockstep::NativeShuffle::Create(shuffle));
  LOCKSTEP_ASSIGN_OR_RETURN(
      auto order, lockstep::SubsetOrder::Create(std::move(shuffled), easy,
                                                context.dataset->size()));
  lockstep::SamplerOptions sampler;
  sampler.rank = context.rank;
  sampler.cut.world = context.world_size;
  sampler.cut.batch_size = options.rank_batch_size;
  sampler.cut.tail = lockstep::Tail::kUneven;
  return Sampler::Create(std::move(order), sampler);
}

TEST(Easy, Conforms) {
  lockstep::PluginRegistry registry;
  LOCKSTEP_ASSERT_OK(registry.Add<Sampler>("easy", "The half.", MakeEasy));
  PluginContext context;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      context.dataset,
      lockstep::TensorDataset::Create({lockstep::NamedTensor::Own<int64_t>(
          "x", {203}, std::vector<int64_t>(203))}));
  lockstep::ExpectConforms([&](int64_t rank, int64_t ranks) {
    context.rank = rank;
    context.world_size = ranks;
    return registry.Create<Sampler>("easy", context, lockstep::Config());
  });
}

}  // namespace
