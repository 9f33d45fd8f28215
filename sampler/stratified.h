// An order in which every stretch holds each class in proportion.
//
//   StratifiedOptions options;
//   options.labels = labels_of_samples;
//   auto order = StratifiedOrder::Create(options);
//
// Of the first n positions each class has its share of n, but for less than
// one; so each global batch does too. The samples of a class are shuffled.
// Take it with Layout::kBlocked, so that each rank's share of a batch is within
// two of its proportion. (Strided, two classes that alternate would give each
// of two ranks one class; Sampler refuses that.)
#ifndef LOCKSTEP_SAMPLER_STRATIFIED_H_
#define LOCKSTEP_SAMPLER_STRATIFIED_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

struct StratifiedOptions {
  // The class of each sample, by any numbers.
  std::vector<int64_t> labels;

  uint64_t seed = 0;
};

// Memory: 8 bytes a sample, and 8 for each open epoch, built by Prepare.
class StratifiedOrder : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const StratifiedOrder>> Create(
      const StratifiedOptions& options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
  bool NeedsBlockedLayout() const override { return true; }

  // The samples of each class, one class after the other.
  struct Classes {
    std::vector<int64_t> members;
    std::vector<int64_t> counts;
  };

 private:
  explicit StratifiedOrder(const StratifiedOptions& options);

  const uint64_t seed_;
  const uint64_t digest_;
  const std::shared_ptr<const Classes> classes_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_STRATIFIED_H_
