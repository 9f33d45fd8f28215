#include "lockstep/sampler/torch_random.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/check_options.h"
#include "lockstep/sampler/torch_generator.h"
#include "lockstep/sampler/torch_permutation.h"

namespace lockstep {
namespace {

// The words of an int64 from random_(), as for base_seed and for
// RandomSampler's own seed.
constexpr uint64_t kSeedWords = 2;

// Skipping so many words takes a day and a half, at half a nanosecond each.
constexpr uint64_t kMostWords = uint64_t{1} << 48;

absl::string_view Name(TorchGeneratorUse use) {
  switch (use) {
    case TorchGeneratorUse::kOwn:
      return "own";
    case TorchGeneratorUse::kSharedWithLoader:
      return "shared_with_loader";
    case TorchGeneratorUse::kDefault:
      return "default";
  }
  return "invalid";
}

}  // namespace

namespace internal_sampler {

// The generators at the beginning of the epochs of a sampler. It remembers
// where two epochs began, which in training are the current one and the next.
// So the next epoch costs the same after any number of epochs.
// Thread-safety: thread-safe.
class EpochGenerators {
 public:
  template <typename Options>
  explicit EpochGenerators(const Options& options)
      : seed_(options.seed),
        use_(options.generator),
        persistent_workers_(options.persistent_workers &&
                            use_ != TorchGeneratorUse::kOwn),
        begin_{0, TorchGenerator(seed_)},
        early_(begin_),
        late_(begin_) {}

  // Returns the generator at the beginning of `epoch`, where each epoch of the
  // order `what` takes `words_of_epoch` words. INVALID_ARGUMENT if the epoch is
  // negative or too far.
  absl::StatusOr<TorchGenerator> At(absl::string_view what, int64_t epoch,
                                    unsigned __int128 words_of_epoch) const {
    if (epoch < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": the epoch counts how often the sampler was ",
                       "iterated before, but got epoch=", epoch));
    }
    const uint64_t base_seed = use_ == TorchGeneratorUse::kOwn ? 0 : kSeedWords;
    const unsigned __int128 words =
        words_of_epoch + (persistent_workers_ ? 0 : base_seed);
    if (epoch > 0 && words > kMostWords / epoch) {
      return absl::InvalidArgumentError(absl::StrCat(
          what, ": epoch ", epoch, " begins more than 2^48 random words into ",
          "PyTorch's generator; the native order goes there in no time"));
    }
    MutexLock lock(mutex_);
    Place place = epoch >= late_.epoch    ? late_
                  : epoch >= early_.epoch ? early_
                                          : begin_;
    if (place.epoch != epoch) {
      place.generator.Skip(static_cast<uint64_t>(epoch - place.epoch) *
                           static_cast<uint64_t>(words));
      place.epoch = epoch;
      early_ = place;
      if (early_.epoch > late_.epoch) std::swap(early_, late_);
    }
    place.generator.Skip(base_seed);
    return place.generator;
  }

  std::string Details() const {
    // Without persistent workers the text equals that in states of earlier
    // releases, so those can be restored.
    return absl::StrCat("generator:", Name(use_),
                        persistent_workers_ ? ",persistent_workers:true" : "");
  }
  uint64_t seed() const { return seed_; }

 private:
  struct Place {
    int64_t epoch;
    TorchGenerator generator;
  };

  const uint64_t seed_;
  const TorchGeneratorUse use_;
  const bool persistent_workers_;
  const Place begin_;
  mutable Mutex mutex_;
  mutable Place early_ ABSL_GUARDED_BY(mutex_);
  mutable Place late_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace internal_sampler

namespace {

using internal_sampler::EpochGenerators;

// Returns running sums divided by the total, as multinomial makes them.
std::shared_ptr<const std::vector<double>> CumulativeChances(
    const std::vector<double>& weights) {
  std::vector<double> cumulative(weights.size());
  double sum = 0;
  for (size_t i = 0; i < cumulative.size(); ++i) {
    sum += weights[i];
    cumulative[i] = sum;
  }
  for (double& chance : cumulative) chance /= sum;
  cumulative.back() = 1;
  return std::make_shared<const std::vector<double>>(std::move(cumulative));
}

// A stream of draws, each of which takes `words` words of the generator. Going
// back means starting from the beginning.
// Thread-safety: thread-compatible.
template <typename Draw>
class DrawnStream : public IndexStream {
 public:
  DrawnStream(int64_t size, const TorchGenerator& generator, uint64_t words,
              Draw draw)
      : size_(size),
        words_(words),
        draw_(std::move(draw)),
        begin_(generator),
        generator_(generator) {}

  int64_t size() const override { return size_; }

  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    if (!out.empty() && first < next_) {
      generator_ = begin_;
      next_ = 0;
    }
    for (int64_t& index : out) {
      if (first > next_) {
        generator_.Skip(words_ * static_cast<uint64_t>(first - next_));
      }
      index = draw_(generator_);
      next_ = first + 1;
      first += stride;
    }
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
  const uint64_t words_;
  const Draw draw_;
  const TorchGenerator begin_;
  TorchGenerator generator_;
  int64_t next_ = 0;  // the position whose draw comes next from generator_
};

template <typename Draw>
std::unique_ptr<IndexStream> MakeDrawnStream(int64_t size,
                                             const TorchGenerator& generator,
                                             uint64_t words, Draw draw) {
  return std::make_unique<DrawnStream<Draw>>(size, generator, words,
                                             std::move(draw));
}

// Permutation after permutation from the same generator. It holds one
// permutation, and the generator before it.
// Thread-safety: thread-compatible.
class PermutationsStream : public IndexStream {
 public:
  PermutationsStream(int64_t size, int64_t samples, TorchProfile profile,
                     const TorchGenerator& generator)
      : size_(size),
        samples_(samples),
        profile_(profile),
        begin_(generator),
        before_(generator),
        held_(samples, profile, generator) {}

  int64_t size() const override { return size_; }
  absl::Status Prepare() override { return held_.Prepare(); }

  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    while (!out.empty()) {
      const int64_t number = first / samples_, within = first % samples_;
      if (number != number_) Hold(number);
      const int64_t count =
          std::min<int64_t>(static_cast<int64_t>(out.size()),
                            (samples_ - 1 - within) / stride + 1);
      LOCKSTEP_RETURN_IF_ERROR(held_.Read(within, stride, out.first(count)));
      out.remove_prefix(count);
      first += count * stride;
    }
    return absl::OkStatus();
  }

 private:
  void Hold(int64_t number) {
    if (number < number_) {
      before_ = begin_;
      number_ = 0;
    }
    before_.Skip(
        static_cast<uint64_t>(number - number_) *
        static_cast<uint64_t>(TorchPermutationWords(profile_, samples_)));
    held_ = TorchPermutation(samples_, profile_, before_);
    number_ = number;
  }

  const int64_t size_;
  const int64_t samples_;
  const TorchProfile profile_;
  const TorchGenerator begin_;
  TorchGenerator before_;
  TorchPermutation held_;
  int64_t number_ = 0;  // the number of the held permutation
};

// Reads indices[randperm(n)].
// Thread-safety: thread-compatible.
class SubsetStream : public IndexStream {
 public:
  SubsetStream(TorchPermutation permutation,
               std::shared_ptr<const TorchSubsetOptions> options)
      : permutation_(std::move(permutation)), options_(std::move(options)) {}

  int64_t size() const override { return permutation_.size(); }
  absl::Status Prepare() override { return permutation_.Prepare(); }
  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    LOCKSTEP_RETURN_IF_ERROR(permutation_.Read(first, stride, out));
    for (int64_t& index : out) index = options_->indices[index];
    return absl::OkStatus();
  }

 private:
  TorchPermutation permutation_;
  const std::shared_ptr<const TorchSubsetOptions> options_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const TorchRandom>> TorchRandom::Create(
    const TorchRandomOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSize("torch_random", options.size));
  TorchRandomOptions resolved = options;
  if (options.num_samples == 0) resolved.num_samples = options.size;
  if (resolved.num_samples <= 0 || resolved.num_samples > kMaxSize ||
      options.size == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_samples should be a positive integer value, but got num_samples=",
        resolved.num_samples, " for a dataset of ", options.size, " samples"));
  }
  return std::shared_ptr<const TorchRandom>(new TorchRandom(resolved));
}

TorchRandom::TorchRandom(const TorchRandomOptions& options)
    : options_(options),
      generators_(std::make_shared<const EpochGenerators>(options)) {}

absl::StatusOr<std::unique_ptr<IndexStream>> TorchRandom::Open(
    int64_t epoch) const {
  const int64_t size = options_.size, draws = options_.num_samples;
  const bool wide = Draws64Bits(options_.profile, size);
  // A complete iteration of RandomSampler draws draws / size permutations and
  // one more, of which it uses the remaining draws or none.
  const unsigned __int128 words =
      options_.replacement
          ? static_cast<unsigned __int128>(draws) * (wide ? 2 : 1)
          : static_cast<unsigned __int128>(draws / size + 1) *
                TorchPermutationWords(options_.profile, size);
  const bool has_default = options_.generator == TorchGeneratorUse::kDefault;
  LOCKSTEP_ASSIGN_OR_RETURN(
      TorchGenerator generator,
      generators_->At("torch_random", epoch, has_default ? kSeedWords : words));
  if (has_default) {
    generator = TorchGenerator(static_cast<uint64_t>(generator.NextInt63()));
  }
  if (!options_.replacement) {
    return std::make_unique<PermutationsStream>(draws, size, options_.profile,
                                                generator);
  }
  if (wide) {
    return MakeDrawnStream(draws, generator, 2, [size](TorchGenerator& g) {
      return static_cast<int64_t>(g.Next64() % static_cast<uint64_t>(size));
    });
  }
  return MakeDrawnStream(draws, generator, 1, [size](TorchGenerator& g) {
    return static_cast<int64_t>(g.Next32() % static_cast<uint64_t>(size));
  });
}

Coverage TorchRandom::coverage() const {
  const int64_t drawn =
      options_.num_samples == 0 ? options_.size : options_.num_samples;
  if (options_.replacement || drawn > options_.size) return Coverage::kAny;
  return drawn == options_.size ? Coverage::kEachOnce : Coverage::kAtMostOnce;
}

OrderDescription TorchRandom::Describe() const {
  OrderDescription description;
  description.order = "torch_random";
  description.size = options_.size;
  description.seed = options_.seed;
  description.profile = std::string(lockstep::Name(options_.profile));
  description.details =
      absl::StrCat("num_samples:", options_.num_samples,
                   ",replacement:", options_.replacement ? "true" : "false",
                   ",", generators_->Details());
  return description;
}

absl::StatusOr<std::shared_ptr<const TorchSubset>> TorchSubset::Create(
    TorchSubsetOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSize("torch_subset", options.size));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckIndices("torch_subset", options.indices, options.size));
  return std::shared_ptr<const TorchSubset>(
      new TorchSubset(std::move(options)));
}

TorchSubset::TorchSubset(TorchSubsetOptions options)
    : options_(std::make_shared<const TorchSubsetOptions>(std::move(options))),
      generators_(std::make_shared<const EpochGenerators>(*options_)),
      digest_(DigestOfValues(options_->indices)) {}

absl::StatusOr<std::unique_ptr<IndexStream>> TorchSubset::Open(
    int64_t epoch) const {
  const auto count = static_cast<int64_t>(options_->indices.size());
  const TorchProfile profile = options_->profile;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const TorchGenerator generator,
      generators_->At("torch_subset", epoch,
                      TorchPermutationWords(profile, count)));
  return std::make_unique<SubsetStream>(
      TorchPermutation(count, profile, generator), options_);
}

Coverage TorchSubset::coverage() const {
  return CoverageOf(options_->indices, options_->size);
}

OrderDescription TorchSubset::Describe() const {
  OrderDescription description;
  description.order = "torch_subset";
  description.size = options_->size;
  description.seed = options_->seed;
  description.profile = std::string(lockstep::Name(options_->profile));
  description.details = generators_->Details();
  description.data = digest_;
  return description;
}

absl::StatusOr<std::shared_ptr<const TorchWeighted>> TorchWeighted::Create(
    const TorchWeightedOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckWeights("torch_weighted", options.weights));
  if (options.num_samples < 2 || options.num_samples > kMaxSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_samples should be a positive integer value, but got num_samples=",
        options.num_samples, "; PyTorch draws a single sample by the C ",
        "library's logarithm, so that torch_weighted takes 2 or more"));
  }
  return std::shared_ptr<const TorchWeighted>(new TorchWeighted(options));
}

TorchWeighted::TorchWeighted(const TorchWeightedOptions& options)
    : num_samples_(options.num_samples),
      generators_(std::make_shared<const EpochGenerators>(options)),
      cumulative_(CumulativeChances(options.weights)),
      digest_(DigestOfValues(options.weights)) {}

absl::StatusOr<std::unique_ptr<IndexStream>> TorchWeighted::Open(
    int64_t epoch) const {
  constexpr uint64_t kWords = 2;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const TorchGenerator generator,
      generators_->At("torch_weighted", epoch,
                      static_cast<unsigned __int128>(num_samples_) * kWords));
  return MakeDrawnStream(
      num_samples_, generator, kWords,
      [cumulative = cumulative_](TorchGenerator& g) -> int64_t {
        return std::lower_bound(cumulative->begin(), cumulative->end(),
                                g.NextUniform()) -
               cumulative->begin();
      });
}

OrderDescription TorchWeighted::Describe() const {
  OrderDescription description;
  description.order = "torch_weighted";
  description.size = static_cast<int64_t>(cumulative_->size());
  description.seed = generators_->seed();
  description.details =
      absl::StrCat("num_samples:", num_samples_, ",", generators_->Details());
  description.data = digest_;
  return description;
}

}  // namespace lockstep
