#include "lockstep/sampler/sequential_order.h"

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/check_options.h"

namespace lockstep {
namespace {

// Thread-safety: thread-compatible.
class SequentialStream : public IndexStream {
 public:
  explicit SequentialStream(int64_t size) : size_(size) {}

  int64_t size() const override { return size_; }
  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    for (int64_t& index : out) {
      index = first;
      first += stride;
    }
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const SequentialOrder>> SequentialOrder::Create(
    int64_t size) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSize("sequential", size));
  return std::shared_ptr<const SequentialOrder>(new SequentialOrder(size));
}

absl::StatusOr<std::unique_ptr<IndexStream>> SequentialOrder::Open(
    int64_t epoch) const {
  return std::make_unique<SequentialStream>(size_);
}

OrderDescription SequentialOrder::Describe() const {
  OrderDescription description;
  description.order = "sequential";
  description.size = size_;
  return description;
}

}  // namespace lockstep
