#include "lockstep/sampler/wrapped_orders.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/check_options.h"

namespace lockstep {
namespace {

// Thread-safety: thread-compatible.
class SubsetStream : public IndexStream {
 public:
  SubsetStream(std::unique_ptr<IndexStream> inner,
               std::shared_ptr<const std::vector<int64_t>> indices)
      : inner_(std::move(inner)), indices_(std::move(indices)) {}

  int64_t size() const override { return inner_->size(); }
  absl::Status Prepare() override { return inner_->Prepare(); }
  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    LOCKSTEP_RETURN_IF_ERROR(inner_->Read(first, stride, out));
    for (int64_t& index : out) index = (*indices_)[index];
    return absl::OkStatus();
  }
  absl::StatusOr<Segment> SegmentAt(int64_t position) override {
    return inner_->SegmentAt(position);
  }

 private:
  const std::unique_ptr<IndexStream> inner_;
  const std::shared_ptr<const std::vector<int64_t>> indices_;
};

// Thread-safety: thread-compatible.
class RepeatedStream : public IndexStream {
 public:
  RepeatedStream(std::unique_ptr<IndexStream> inner, int64_t repeats,
                 int64_t size)
      : inner_(std::move(inner)), repeats_(repeats), size_(size) {}

  int64_t size() const override { return size_; }
  absl::Status Prepare() override { return inner_->Prepare(); }
  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t place = first / repeats_;
      if (place != held_place_) {
        LOCKSTEP_RETURN_IF_ERROR(
            inner_->Read(place, 1, absl::MakeSpan(&held_index_, 1)));
        held_place_ = place;
      }
      out[i] = held_index_;
      first += stride;
    }
    return absl::OkStatus();
  }

  // Returns the inner order's segment, scaled since each inner position becomes
  // `repeats_` positions.
  absl::StatusOr<Segment> SegmentAt(int64_t position) override {
    LOCKSTEP_ASSIGN_OR_RETURN(Segment segment,
                              inner_->SegmentAt(position / repeats_));
    segment.begin *= repeats_;
    segment.end = std::min(size_, segment.end * repeats_);
    return segment;
  }

 private:
  const std::unique_ptr<IndexStream> inner_;
  const int64_t repeats_;
  const int64_t size_;
  int64_t held_place_ = -1;
  int64_t held_index_ = 0;
};

// The stream of a CustomOrder.
// Thread-safety: thread-compatible.
class ListStream : public IndexStream {
 public:
  explicit ListStream(const std::vector<std::vector<int64_t>>& batches) {
    for (const std::vector<int64_t>& batch : batches) {
      indices_.insert(indices_.end(), batch.begin(), batch.end());
      if (!batch.empty()) ends_.push_back(size());
    }
  }

  int64_t size() const override {
    return static_cast<int64_t>(indices_.size());
  }
  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    for (int64_t& index : out) {
      index = indices_[first];
      first += stride;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Segment> SegmentAt(int64_t position) override {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), position);
    return Segment{end == ends_.begin() ? 0 : *(end - 1), *end, 0};
  }

 private:
  std::vector<int64_t> indices_;
  std::vector<int64_t> ends_;  // the ends of the batches
};

absl::Status CheckInner(absl::string_view what,
                        const std::shared_ptr<const Order>& inner) {
  if (inner != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " needs an inner order, but got none"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const SubsetOrder>> SubsetOrder::Create(
    std::shared_ptr<const Order> inner, std::vector<int64_t> indices,
    int64_t size) {
  LOCKSTEP_RETURN_IF_ERROR(CheckInner("subset", inner));
  LOCKSTEP_RETURN_IF_ERROR(CheckSize("subset", size));
  LOCKSTEP_RETURN_IF_ERROR(CheckIndices("subset", indices, size));
  const int64_t walked = inner->Describe().size;
  if (walked != static_cast<int64_t>(indices.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "subset: the inner order must walk as many samples as there are "
        "indices, ",
        indices.size(), ", but walks ", walked));
  }
  return std::shared_ptr<const SubsetOrder>(
      new SubsetOrder(std::move(inner), std::move(indices), size));
}

SubsetOrder::SubsetOrder(std::shared_ptr<const Order> inner,
                         std::vector<int64_t> indices, int64_t size)
    : inner_(std::move(inner)),
      indices_(
          std::make_shared<const std::vector<int64_t>>(std::move(indices))),
      size_(size),
      digest_(DigestOfValues(*indices_)) {}

absl::StatusOr<std::unique_ptr<IndexStream>> SubsetOrder::Open(
    int64_t epoch) const {
  LOCKSTEP_ASSIGN_OR_RETURN(auto inner, inner_->Open(epoch));
  return std::make_unique<SubsetStream>(std::move(inner), indices_);
}

Coverage SubsetOrder::coverage() const {
  return std::max(inner_->coverage(), CoverageOf(*indices_, size_));
}

OrderDescription SubsetOrder::Describe() const {
  OrderDescription description;
  description.order = "subset";
  description.size = size_;
  description.details = inner_->Describe().ToString();
  description.data = digest_;
  return description;
}

absl::StatusOr<std::shared_ptr<const RepeatedOrder>> RepeatedOrder::Create(
    std::shared_ptr<const Order> inner, const RepeatOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckInner("repeated", inner));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckPositive("repeated", "repeats", options.repeats));
  if (inner->packing().has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "repeated: the inner order, '", inner->Describe().order,
        "', packs several samples into a row, which can't be repeated: pack "
        "the repeated order instead"));
  }
  if (options.keep < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "repeated: keep must be 0 (for all) or more, but got keep=",
        options.keep));
  }
  return std::shared_ptr<const RepeatedOrder>(
      new RepeatedOrder(std::move(inner), options));
}

absl::StatusOr<std::unique_ptr<IndexStream>> RepeatedOrder::Open(
    int64_t epoch) const {
  LOCKSTEP_ASSIGN_OR_RETURN(auto inner, inner_->Open(epoch));
  int64_t size;
  if (__builtin_mul_overflow(inner->size(), options_.repeats, &size) ||
      size > kMaxSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("repeated: ", inner->size(), " positions, ",
                     options_.repeats, " times each, are more than 2^62"));
  }
  if (options_.keep > 0) size = std::min(size, options_.keep);
  return std::make_unique<RepeatedStream>(std::move(inner), options_.repeats,
                                          size);
}

OrderDescription RepeatedOrder::Describe() const {
  const OrderDescription inner = inner_->Describe();
  OrderDescription description;
  description.order = "repeated";
  description.size = inner.size;
  description.details =
      absl::StrCat("repeats:", options_.repeats, ",keep:", options_.keep, ",",
                   inner.ToString());
  return description;
}

absl::StatusOr<std::shared_ptr<const CustomOrder>> CustomOrder::Create(
    const CustomOrderOptions& options, Function function) {
  if (!function) return CreateBatches(options, nullptr);
  return CreateBatches(
      options,
      [function = std::move(function)](
          int64_t epoch) -> absl::StatusOr<std::vector<std::vector<int64_t>>> {
        LOCKSTEP_ASSIGN_OR_RETURN(std::vector<int64_t> indices,
                                  function(epoch));
        return std::vector<std::vector<int64_t>>{std::move(indices)};
      });
}

absl::StatusOr<std::shared_ptr<const CustomOrder>> CustomOrder::CreateBatches(
    const CustomOrderOptions& options, BatchesFunction function) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSize(options.name, options.size));
  if (options.name.empty() || !function) {
    return absl::InvalidArgumentError(
        "a custom order needs a name and a function");
  }
  return std::shared_ptr<const CustomOrder>(
      new CustomOrder(options, std::move(function)));
}

absl::StatusOr<std::unique_ptr<IndexStream>> CustomOrder::Open(
    int64_t epoch) const {
  absl::StatusOr<std::vector<std::vector<int64_t>>> batches =
      absl::UnknownError("");
  try {
    batches = function_(epoch);
  } catch (const std::exception& error) {
    batches = absl::UnknownError(error.what());
  } catch (...) {
    batches = absl::UnknownError("an exception that is no std::exception");
  }
  if (!batches.ok()) {
    return Annotate(batches.status(),
                    absl::StrCat(options_.name, ", epoch ", epoch));
  }
  for (const std::vector<int64_t>& batch : *batches) {
    LOCKSTEP_RETURN_IF_ERROR(CheckIndices(options_.name, batch, options_.size));
  }
  return std::make_unique<ListStream>(*batches);
}

OrderDescription CustomOrder::Describe() const {
  OrderDescription description;
  description.order = options_.name;
  description.size = options_.size;
  return description;
}

}  // namespace lockstep
