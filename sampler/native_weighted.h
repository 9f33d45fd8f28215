// Weighted draws that are the same on every machine. PyTorch's are not, in
// general.
//
//   NativeWeightedOptions options;
//   options.weights = {0.1, 0.9, 3.0};
//   options.num_samples = 1000;
//   auto order = NativeWeighted::Create(options);
//
// Every rank draws the same stream and takes its share of it, so weighting also
// works in distributed training.
#ifndef LOCKSTEP_SAMPLER_NATIVE_WEIGHTED_H_
#define LOCKSTEP_SAMPLER_NATIVE_WEIGHTED_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

struct NativeWeightedOptions {
  // One weight for each sample: finite, not negative, not all zero.
  std::vector<double> weights;

  // The number of draws in an epoch.
  int64_t num_samples = 0;

  // With replacement, a sample may come more than once, and any position is
  // drawn in constant time. It uses Walker's alias method, with 16 bytes per
  // weight, which all epochs share. Without replacement, each sample comes at
  // most once, and samples with larger weights tend to come earlier. It uses
  // exponential keys, with 16 bytes per weight for each open epoch, which
  // Prepare builds beside the weights; num_samples is then at most the number
  // of positive weights.
  bool replacement = true;

  uint64_t seed = 0;
};

// Thread-safety: immutable.
class NativeWeighted : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const NativeWeighted>> Create(
      NativeWeightedOptions options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
  Coverage coverage() const override;

  // An entry of the alias table. A place that is drawn evenly stands for itself
  // with chance `keep`, and for `alias` otherwise.
  struct Alias {
    double keep;
    int64_t alias;
  };

 private:
  explicit NativeWeighted(NativeWeightedOptions options);

  const int64_t size_;
  const uint64_t digest_;
  std::shared_ptr<const std::vector<Alias>> aliases_;
  std::shared_ptr<const NativeWeightedOptions> options_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_NATIVE_WEIGHTED_H_
