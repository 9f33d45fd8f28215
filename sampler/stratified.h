// An order in which every prefix has each class in proportion.
//
//   StratifiedOptions options;
//   options.labels = labels_of_samples;
//   auto order = StratifiedOrder::Create(options);
//
// Among the first n positions, the count of each class differs from its share
// of n by less than one, so each global batch has each class nearly in
// proportion too. The samples of a class are shuffled. Use Layout::kBlocked, so
// that each rank's part of a batch is within two of its proportion. With the
// strided layout, two alternating classes would give each of two ranks one
// class; Sampler refuses that.
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
  // The class of each sample; any numbers.
  std::vector<int64_t> labels;

  uint64_t seed = 0;
};

// Memory: 8 bytes per sample, and 8 more per sample for each open epoch, which
// Prepare builds.
// Thread-safety: immutable.
class StratifiedOrder : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const StratifiedOrder>> Create(
      const StratifiedOptions& options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
  bool NeedsBlockedLayout() const override { return true; }

  // The samples of each class, sorted by class.
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
