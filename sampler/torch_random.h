// PyTorch's samplers that draw from a generator in each epoch: RandomSampler,
// SubsetRandomSampler and WeightedRandomSampler.
//
//   // The third epoch of RandomSampler(range(10), generator=g), where
//   // g.manual_seed(0):
//   TorchRandomOptions options;
//   options.size = 10;
//   options.seed = 0;
//   auto order = TorchRandom::Create(options);
//   auto stream = (*order)->Open(/*epoch=*/2);
//
// The epoch is the number of complete iterations of the sampler before. The
// words that PyTorch draws for them are skipped, at half a nanosecond each. A
// later epoch is reached from the last one that was opened.
#ifndef LOCKSTEP_SAMPLER_TORCH_RANDOM_H_
#define LOCKSTEP_SAMPLER_TORCH_RANDOM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/torch_profile.h"

namespace lockstep {

// The seed of a torch.Generator() that was not seeded.
inline constexpr uint64_t kTorchDefaultSeed = 67280421310721;

// The generator that a sampler draws from.
enum class TorchGeneratorUse {
  // generator=g, given to the sampler alone.
  kOwn,
  // DataLoader(generator=g): the loader draws its base_seed from g first.
  kSharedWithLoader,
  // No generator was given, and the sampler runs inside a DataLoader after
  // torch.manual_seed. The loader draws its base_seed first, and then the
  // sampler draws a seed for a generator of its own.
  kDefault,
};

namespace internal_sampler {
class EpochGenerators;
}  // namespace internal_sampler

struct TorchRandomOptions {
  // The samples in the dataset.
  int64_t size = 0;

  // The number of draws, or 0 for as many as there are samples.
  int64_t num_samples = 0;

  // True to draw each sample independently of the others, by randint.
  bool replacement = false;

  // The seed of the generator.
  uint64_t seed = kTorchDefaultSeed;
  TorchGeneratorUse generator = TorchGeneratorUse::kOwn;

  // DataLoader(persistent_workers=True) draws its base_seed only in the first
  // epoch. Has no meaning for kOwn.
  bool persistent_workers = false;

  TorchProfile profile = kNewestTorchProfile;
};

// PyTorch's RandomSampler. Without replacement, and with more draws than
// samples, it is one permutation after the other.
// Thread-safety: thread-safe.
class TorchRandom : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const TorchRandom>> Create(
      const TorchRandomOptions& options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
  Coverage coverage() const override;

 private:
  explicit TorchRandom(const TorchRandomOptions& options);

  const TorchRandomOptions options_;
  const std::shared_ptr<const internal_sampler::EpochGenerators> generators_;
};

struct TorchSubsetOptions {
  // The samples to draw from.
  std::vector<int64_t> indices;

  // The samples in the dataset; the indices are below it.
  int64_t size = 0;

  // As in TorchRandomOptions. Without a generator, SubsetRandomSampler draws
  // from the default one itself.
  uint64_t seed = kTorchDefaultSeed;
  TorchGeneratorUse generator = TorchGeneratorUse::kOwn;
  bool persistent_workers = false;

  TorchProfile profile = kNewestTorchProfile;
};

// PyTorch's SubsetRandomSampler.
// Thread-safety: thread-safe.
class TorchSubset : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const TorchSubset>> Create(
      TorchSubsetOptions options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
  Coverage coverage() const override;

 private:
  explicit TorchSubset(TorchSubsetOptions options);

  const std::shared_ptr<const TorchSubsetOptions> options_;
  const std::shared_ptr<const internal_sampler::EpochGenerators> generators_;
  const uint64_t digest_;
};

struct TorchWeightedOptions {
  // One weight for each sample: finite, not negative, not all zero. They need
  // not add up to one.
  std::vector<double> weights;

  // The number of draws. At least 2, since PyTorch draws a single sample in
  // another way, with the C library's logarithm.
  int64_t num_samples = 0;

  // As in TorchRandomOptions. Without a generator, WeightedRandomSampler draws
  // from the default one itself.
  uint64_t seed = kTorchDefaultSeed;
  TorchGeneratorUse generator = TorchGeneratorUse::kOwn;
  bool persistent_workers = false;
};

// PyTorch's WeightedRandomSampler(replacement=True), for any number of weights
// (PyTorch refuses more than 2^24). Without replacement PyTorch's draws depend
// on the C library and the processor's vendor, so use NativeWeighted for that.
// Thread-safety: thread-safe.
class TorchWeighted : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const TorchWeighted>> Create(
      const TorchWeightedOptions& options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
  Coverage coverage() const override { return Coverage::kAny; }

 private:
  explicit TorchWeighted(const TorchWeightedOptions& options);

  const int64_t num_samples_;
  const std::shared_ptr<const internal_sampler::EpochGenerators> generators_;
  const std::shared_ptr<const std::vector<double>> cumulative_;
  const uint64_t digest_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_TORCH_RANDOM_H_
