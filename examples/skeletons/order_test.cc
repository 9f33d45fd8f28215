// An order of your own, which decides the sequence of the samples. This one
// takes them with a stride that changes with the epoch.
#include "lockstep/sampler/order.h"

#include <cstdint>
#include <memory>
#include <numeric>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/order_conformance.h"

namespace {

class StridedStream : public lockstep::IndexStream {
 public:
  StridedStream(int64_t size, int64_t stride) : size_(size), stride_(stride) {}
  int64_t size() const override { return size_; }
  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    for (int64_t& index : out) {
      index = first * stride_ % size_;
      first += stride;
    }
    return absl::OkStatus();
  }

 private:
  const int64_t size_, stride_;
};

class Strided : public lockstep::Order {
 public:
  explicit Strided(int64_t size) : size_(size) {}
  // Each index comes once, since the stride and the size have no common
  // divisor.
  absl::StatusOr<std::unique_ptr<lockstep::IndexStream>> Open(
      int64_t epoch) const override {
    int64_t stride = 7 + epoch;
    while (std::gcd(stride, size_) != 1) ++stride;
    return std::make_unique<StridedStream>(size_, stride);
  }
  // A checkpoint with another description is refused. So everything that
  // changes the stream must be a part of the description.
  lockstep::OrderDescription Describe() const override {
    return {"strided", size_, 0, "", "from 7", 0};
  }

 private:
  const int64_t size_;
};

absl::StatusOr<std::shared_ptr<const lockstep::Order>> MakeStrided(
    const lockstep::PluginContext& context, const lockstep::NoOptions&) {
  if (context.dataset != nullptr && context.dataset->size() > 0) {
    return std::make_shared<Strided>(context.dataset->size());
  }
  return absl::InvalidArgumentError("strided needs a dataset with samples");
}

TEST(Strided, Conforms) {
  for (const int64_t size : {1, 2, 100, 1001}) {
    for (const int64_t epoch : {0, 7}) {
      lockstep::ExpectConforms(Strided(size), epoch);
    }
  }
}

TEST(Strided, HasAName) {
  lockstep::PluginRegistry registry;
  LOCKSTEP_EXPECT_OK(registry.Add<lockstep::Order>(
      "strided", "Strides through the samples.", MakeStrided));
}

}  // namespace
