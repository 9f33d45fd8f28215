// Samples of rare classes more often: each comes as often as its factor says,
// fractions by chance anew every epoch, all of them shuffled.
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
  // How often each sample comes on average: finite, not negative. 2.25 is twice
  // in three epochs of four, and three times in the fourth.
  std::vector<double> factors;

  uint64_t seed = 0;
};

// Memory: 8 bytes a sample for each open epoch.
class RepeatFactorOrder : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const RepeatFactorOrder>> Create(
      RepeatFactorOptions options);

  // The length of the stream differs from epoch to epoch.
  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;

 private:
  explicit RepeatFactorOrder(RepeatFactorOptions options);

  const RepeatFactorOptions options_;
  const uint64_t digest_;
};

// LVIS's factors, as detectron2 has them: a class that a share f of the samples
// has gets max(1, sqrt(threshold / f)), and a sample the largest factor among
// its classes, or 1 without any.
std::vector<double> RepeatFactorsFromClasses(
    absl::Span<const std::vector<int64_t>> classes_of_sample, double threshold);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_REPEAT_FACTOR_H_
