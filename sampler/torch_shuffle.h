// TorchShuffle is an order that shuffles as PyTorch does.
//
//   // The order of DistributedSampler(dataset, seed=7) at set_epoch(3):
//   TorchShuffleOptions options;
//   options.size = 1000000;
//   options.seed = 7;
//   auto order = TorchShuffle::Create(options);
//   auto stream = (*order)->Open(/*epoch=*/3);
#ifndef LOCKSTEP_SAMPLER_TORCH_SHUFFLE_H_
#define LOCKSTEP_SAMPLER_TORCH_SHUFFLE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/torch_profile.h"

namespace lockstep {

struct TorchShuffleOptions {
  // The samples in the dataset; 0 gives an empty stream.
  int64_t size = 0;

  // DistributedSampler's seed. The epoch is added to it, and PyTorch uses the
  // lower 32 bits of the sum, so seed 0 at epoch 1 equals seed 1 at epoch 0.
  // The native order has neither weakness.
  uint64_t seed = 0;

  // The release of PyTorch. It matters from 214,748,364 samples on.
  TorchProfile profile = kNewestTorchProfile;
};

// torch.randperm(size) with torch.Generator().manual_seed(seed + epoch).
// Thread-safety: immutable.
class TorchShuffle : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const TorchShuffle>> Create(
      const TorchShuffleOptions& options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;

 private:
  explicit TorchShuffle(const TorchShuffleOptions& options)
      : options_(options) {}

  const TorchShuffleOptions options_;
};

// Returns seed + epoch as PyTorch's manual_seed takes it. INVALID_ARGUMENT
// outside of [-2^63, 2^64).
absl::StatusOr<uint64_t> TorchEpochSeed(uint64_t seed, int64_t epoch);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_TORCH_SHUFFLE_H_
