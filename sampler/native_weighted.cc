#include "lockstep/sampler/native_weighted.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/check_options.h"
#include "lockstep/sampler/random_streams.h"

namespace lockstep {
namespace {

using Alias = NativeWeighted::Alias;

// Vose's construction: a place above the mean fills up each place below it.
std::vector<Alias> MakeAliases(const std::vector<double>& weights) {
  const auto count = static_cast<int64_t>(weights.size());
  // Weights are scaled by the largest, so that tiny ones do not underflow.
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (const double weight : weights) sum += weight / largest;
  const double mean = sum / static_cast<double>(count);
  std::vector<Alias> aliases(weights.size());
  std::vector<int64_t> low, high;
  for (int64_t i = 0; i < count; ++i) {
    aliases[i] = {weights[i] / largest / mean, i};
    (aliases[i].keep < 1 ? low : high).push_back(i);
  }
  while (!low.empty() && !high.empty()) {
    const int64_t filled = low.back(), giver = high.back();
    low.pop_back();
    aliases[filled].alias = giver;
    aliases[giver].keep -= 1 - aliases[filled].keep;
    if (aliases[giver].keep < 1) {
      high.pop_back();
      low.push_back(giver);
    }
  }
  // The rest deviates only by rounding, unless its weight is zero.
  for (const int64_t i : low) {
    if (weights[i] > 0) aliases[i] = {1, i};
  }
  for (const int64_t i : high) aliases[i].keep = 1;
  return aliases;
}

// The stream of draws with replacement.
// Thread-safety: thread-compatible.
class AliasStream : public IndexStream {
 public:
  AliasStream(int64_t size, uint64_t key,
              std::shared_ptr<const std::vector<Alias>> aliases)
      : size_(size), key_(key), aliases_(std::move(aliases)) {}

  int64_t size() const override { return size_; }

  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    for (int64_t& index : out) {
      Random random(key_, static_cast<uint64_t>(first));
      const auto place = static_cast<int64_t>(random.Below(aliases_->size()));
      const Alias& alias = (*aliases_)[place];
      index = random.Uniform() < alias.keep ? place : alias.alias;
      first += stride;
    }
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
  const uint64_t key_;
  const std::shared_ptr<const std::vector<Alias>> aliases_;
};

// Sorts the samples by Exponential() / weight, so the chance to come next is
// proportional to the weight (Efraimidis and Spirakis).
// Thread-safety: thread-compatible.
class KeyedStream : public IndexStream {
 public:
  KeyedStream(uint64_t key,
              std::shared_ptr<const NativeWeightedOptions> options)
      : key_(key), options_(std::move(options)) {}

  int64_t size() const override { return options_->num_samples; }

  absl::Status Prepare() override {
    if (!drawn_.empty()) return absl::OkStatus();
    const std::vector<double>& weights = options_->weights;
    drawn_.reserve(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] == 0) continue;
      Random random(key_, i);
      drawn_.push_back(
          {random.Exponential() / weights[i], static_cast<int64_t>(i)});
    }
    std::partial_sort(drawn_.begin(), drawn_.begin() + size(), drawn_.end());
    return absl::OkStatus();
  }

  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    LOCKSTEP_RETURN_IF_ERROR(Prepare());
    for (int64_t& index : out) {
      index = drawn_[first].second;
      first += stride;
    }
    return absl::OkStatus();
  }

 private:
  const uint64_t key_;
  const std::shared_ptr<const NativeWeightedOptions> options_;
  std::vector<std::pair<double, int64_t>> drawn_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const NativeWeighted>> NativeWeighted::Create(
    NativeWeightedOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckWeights("native_weighted", options.weights));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckPositive("native_weighted", "num_samples", options.num_samples));
  const int64_t positive =
      static_cast<int64_t>(options.weights.size()) -
      std::count(options.weights.begin(), options.weights.end(), 0.0);
  if (!options.replacement && options.num_samples > positive) {
    return absl::InvalidArgumentError(absl::StrCat(
        "native_weighted: without replacement num_samples is at most the "
        "number of positive weights, ",
        positive, ", but got num_samples=", options.num_samples));
  }
  return std::shared_ptr<const NativeWeighted>(
      new NativeWeighted(std::move(options)));
}

NativeWeighted::NativeWeighted(NativeWeightedOptions options)
    : size_(static_cast<int64_t>(options.weights.size())),
      digest_(DigestOfValues(options.weights)) {
  if (options.replacement) {
    aliases_ = std::make_shared<const std::vector<Alias>>(
        MakeAliases(options.weights));
    options.weights = {};  // the aliases replace the weights
  }
  options_ = std::make_shared<const NativeWeightedOptions>(std::move(options));
}

absl::StatusOr<std::unique_ptr<IndexStream>> NativeWeighted::Open(
    int64_t epoch) const {
  const uint64_t key = RandomKey(options_->seed, kNativeWeightedStream,
                                 static_cast<uint64_t>(epoch));
  if (options_->replacement) {
    return std::make_unique<AliasStream>(options_->num_samples, key, aliases_);
  }
  return std::make_unique<KeyedStream>(key, options_);
}

Coverage NativeWeighted::coverage() const {
  if (options_->replacement) return Coverage::kAny;
  return options_->num_samples == size_ ? Coverage::kEachOnce
                                        : Coverage::kAtMostOnce;
}

OrderDescription NativeWeighted::Describe() const {
  OrderDescription description;
  description.order = "native_weighted";
  description.size = size_;
  description.seed = options_->seed;
  description.details =
      absl::StrCat("num_samples:", options_->num_samples,
                   ",replacement:", options_->replacement ? "true" : "false");
  description.data = digest_;
  return description;
}

}  // namespace lockstep
