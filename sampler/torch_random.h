// PyTorch's samplers that draw from a generator, epoch after epoch:
// RandomSampler, SubsetRandomSampler and WeightedRandomSampler.
//
//   // The third epoch of RandomSampler(range(10), generator=g), where
//   // g.manual_seed(0):
//   TorchRandomOptions options;
//   options.size = 10;
//   options.seed = 0;
//   auto order = TorchRandom::Create(options);
//   auto stream = (*order)->Open(/*epoch=*/2);
//
// The epoch says how often the sampler was iterated before, each time to its
// end: the words that PyTorch takes from the generator for that are skipped, at
// half a nanosecond each. An epoch after the last one that was opened is
// reached from there.
#ifndef LOCKSTEP_SAMPLER_TORCH_RANDOM_H_
#define LOCKSTEP_SAMPLER_TORCH_RANDOM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/torch_generator.h"
#include "lockstep/sampler/torch_profile.h"

namespace lockstep {

// Whose random numbers a sampler takes.
enum class TorchGeneratorUse {
  // generator=g, given to the sampler alone.
  kOwn,
  // DataLoader(generator=g): the loader draws its base_seed from g first.
  kSharedWithLoader,
  // No generator: after torch.manual_seed, inside a DataLoader, which draws its
  // base_seed first; then the sampler draws a seed for a generator of its own.
  kDefault,
};

namespace internal_sampler {
class EpochGenerators;
}  // namespace internal_sampler

struct TorchRandomOptions {
  // Samples in the dataset.
  int64_t size = 0;

  // How many to draw; 0 for as many as there are.
  int64_t num_samples = 0;

  // Draw each sample independently of the others, by randint.
  bool replacement = false;

  // What the generator was seeded with.
  uint64_t seed = kTorchDefaultSeed;
  TorchGeneratorUse generator = TorchGeneratorUse::kOwn;

  // DataLoader(persistent_workers=True) draws its base_seed in the first epoch
  // alone. It has no meaning for kOwn.
  bool persistent_workers = false;

  TorchProfile profile = kNewestTorchProfile;
};

// RandomSampler. Without replacement and with more draws than samples it is
// permutation after permutation.
class TorchRandom : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const TorchRandom>> Create(
      const TorchRandomOptions& options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;

 private:
  explicit TorchRandom(const TorchRandomOptions& options);

  const TorchRandomOptions options_;
  const std::shared_ptr<const internal_sampler::EpochGenerators> generators_;
};

struct TorchSubsetOptions {
  // The samples to draw from.
  std::vector<int64_t> indices;

  // Samples in the dataset, of which the indices are some.
  int64_t size = 0;

  // As in TorchRandomOptions. Without a generator SubsetRandomSampler draws
  // from the default one itself.
  uint64_t seed = kTorchDefaultSeed;
  TorchGeneratorUse generator = TorchGeneratorUse::kOwn;
  bool persistent_workers = false;

  TorchProfile profile = kNewestTorchProfile;
};

// SubsetRandomSampler.
class TorchSubset : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const TorchSubset>> Create(
      TorchSubsetOptions options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;

 private:
  explicit TorchSubset(TorchSubsetOptions options);

  const std::shared_ptr<const TorchSubsetOptions> options_;
  const std::shared_ptr<const internal_sampler::EpochGenerators> generators_;
  const uint64_t digest_;
};

struct TorchWeightedOptions {
  // A weight a sample: finite, not negative, not all zero. They need not add up
  // to one.
  std::vector<double> weights;

  // How many to draw: 2 at least, since PyTorch draws a single sample in
  // another way, by the C library's logarithm.
  int64_t num_samples = 0;

  // As in TorchRandomOptions. Without a generator WeightedRandomSampler draws
  // from the default one itself.
  uint64_t seed = kTorchDefaultSeed;
  TorchGeneratorUse generator = TorchGeneratorUse::kOwn;
  bool persistent_workers = false;
};

// WeightedRandomSampler(replacement=True), for any number of weights (PyTorch
// refuses more than 2^24). Without replacement PyTorch's draws depend on the C
// library and the processor's vendor; see NativeWeighted for that.
class TorchWeighted : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const TorchWeighted>> Create(
      const TorchWeightedOptions& options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;

 private:
  explicit TorchWeighted(const TorchWeightedOptions& options);

  const int64_t num_samples_;
  const std::shared_ptr<const internal_sampler::EpochGenerators> generators_;
  const std::shared_ptr<const std::vector<double>> cumulative_;
  const uint64_t digest_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_TORCH_RANDOM_H_
