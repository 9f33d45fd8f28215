// Repeats the samples of rare classes. Each sample comes as often as its factor
// says, and a fraction is a chance that is drawn anew in each epoch. All copies
// are shuffled.
//
//   std::vector<double> factors =
//       RepeatFactorsFromClasses(classes_of_image, /*threshold=*/0.001);
//   auto order = RepeatFactorOrder::Create({factors, /*seed=*/7});
#ifndef LOCKSTEP_SAMPLER_REPEAT_FACTOR_H_
#define LOCKSTEP_SAMPLER_REPEAT_FACTOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

struct RepeatFactorOptions {
  // The average number of times that each sample comes: finite, not negative.
  // 2.25 means twice in three of four epochs, and three times in the fourth.
  std::vector<double> factors;

  uint64_t seed = 0;
};

// Memory: 8 bytes per sample for each open epoch.
// Thread-safety: immutable.
class RepeatFactorOrder : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const RepeatFactorOrder>> Create(
      RepeatFactorOptions options);

  // Opens a stream, whose length differs between epochs.
  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
  Coverage coverage() const override { return Coverage::kAny; }

 private:
  explicit RepeatFactorOrder(RepeatFactorOptions options);

  const RepeatFactorOptions options_;
  const uint64_t digest_;
};

// Returns LVIS's factors as detectron2 computes them. A class that a share f of
// the samples has gets max(1, sqrt(threshold / f)). A sample gets the largest
// factor of its classes, or 1 if it has none.
std::vector<double> RepeatFactorsFromClasses(
    absl::Span<const std::vector<int64_t>> classes_of_sample, double threshold);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_REPEAT_FACTOR_H_
