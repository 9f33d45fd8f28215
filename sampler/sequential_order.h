// The indices 0, 1, 2, ...: SequentialSampler, and
// DistributedSampler(shuffle=False).
//
//   auto order = SequentialOrder::Create(25);
#ifndef LOCKSTEP_SAMPLER_SEQUENTIAL_ORDER_H_
#define LOCKSTEP_SAMPLER_SEQUENTIAL_ORDER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

// Thread-safety: immutable.
class SequentialOrder : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const SequentialOrder>> Create(
      int64_t size);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;

 private:
  explicit SequentialOrder(int64_t size) : size_(size) {}

  const int64_t size_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_SEQUENTIAL_ORDER_H_
