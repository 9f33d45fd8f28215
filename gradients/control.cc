#include "lockstep/gradients/control.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/work.h"
#include "lockstep/gradients/exact_sum.h"
#include "lockstep/gradients/gradients_step.h"
#include "lockstep/gradients/marks.h"

namespace lockstep::internal_gradients {
namespace {

enum Element : size_t { kWeight, kStops, kHasMore, kElements };

// A double represents all integers up to this one, so sums of weights are
// exact.
constexpr int64_t kMostWeight = int64_t{1} << 53;

}  // namespace

absl::Status Control::Check(const StepInput& input, int ranks) const {
  if (!input.weight.has_value()) {
    return absl::InvalidArgumentError(
        "the weight of the step is not set: set StepInput::weight to this "
        "rank's rows or tokens, or to 0 if it has none");
  }
  const int64_t most = kMostWeight / ranks;
  if (*input.weight < 0 || *input.weight > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the weight of a step is ", *input.weight, "; it should be from 0 to ",
        most, ", which is 2^53 divided by the number of ranks"));
  }
  if (exact_ == nullptr ||
      input.sums.size() % static_cast<size_t>(exact_->count()) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("StepInput::sums has ", input.sums.size(),
                   " numbers, and should have a multiple of ", exact_->count(),
                   ": those of each shard of this rank, which has ",
                   exact_->Describe(), ", one shard after another"));
}

void Control::Write(const StepInput& input) {
  elements_.assign(kElements, 0);
  elements_[kWeight] = static_cast<double>(*input.weight);
  elements_[kStops] = input.stop ? 1 : 0;
  elements_[kHasMore] = input.has_more ? 1 : 0;
  const absl::Span<const double> sums = input.sums.first(CountSums(input));
  elements_.insert(elements_.end(), sums.begin(), sums.end());
}

// Returns the number of sums, of which each shard of this rank has brought its
// own.
size_t Control::CountSums(const StepInput& input) const {
  return exact_ == nullptr ? input.sums.size()
                           : input.sums.size() / exact_->count();
}

void Control::WriteMarks(const Marks& marks, bool each, bool is_first_rank) {
  marks_ = elements_.size();
  elements_.push_back(marks.any() ? 1 : 0);
  elements_.push_back(marks.any() && is_first_rank ? 1 : 0);
  for (size_t i = 0; each && i < marks.size(); ++i) {
    elements_.push_back(marks.IsInStep(i) ? 1 : 0);
  }
}

// The first shard has the weight, the flags and the marks, too. They are whole
// numbers, so their totals have the same bits whichever shard has them.
void Control::AddUpShards(const StepInput& input) {
  if (exact_ == nullptr) return;
  const size_t sums = CountSums(input);
  const auto count = static_cast<int64_t>(elements_.size());
  sums_.resize(exact_->slots() * count);
  for (int64_t shard = 0; shard < exact_->count(); ++shard) {
    if (shard > 0) {
      std::fill(elements_.begin(), elements_.end(), 0.0);
      std::copy_n(input.sums.begin() + shard * sums, sums,
                  elements_.begin() + kElements);
    }
    exact_->Add(shard, DType::kF64, elements_.data(), count, DType::kF64,
                sums_.data(), /*stride=*/count);
  }
  std::copy_n(sums_.begin(), count, elements_.begin());
}

absl::StatusOr<Work> Control::AddUp(Communicator& group,
                                    const CallOptions& call) {
  const Buffer all = BufferOf(elements_);
  if (exact_ == nullptr) {
    return group.AllReduce(all, all, ReduceOp::kSum, call);
  }
  const Buffer sums =
      BufferOf(absl::MakeSpan(sums_).first(exact_->sums() * elements_.size()));
  return group.AllReduceShards(sums, all, exact_->shards(), call);
}

StepResult Control::Read(const StepInput& input) const {
  StepResult result;
  result.weight = static_cast<int64_t>(elements_[kWeight]);
  result.stops = static_cast<int64_t>(elements_[kStops]);
  result.any_more = elements_[kHasMore] > 0;
  const size_t sums = CountSums(input);
  std::copy_n(elements_.begin() + kElements, sums, input.sums.begin());
  std::fill(input.sums.begin() + sums, input.sums.end(), 0.0);
  return result;
}

bool Control::IsUsed(size_t parameter) const {
  return elements_[marks_] == 0 || elements_[marks_ + 2 + parameter] > 0;
}

}  // namespace lockstep::internal_gradients
