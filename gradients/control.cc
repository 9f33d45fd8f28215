#include "lockstep/gradients/control.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/gradients/gradients_step.h"
#include "lockstep/gradients/marks.h"

namespace lockstep::internal_gradients {
namespace {

enum Element : size_t { kWeight, kStops, kHasMore, kElements };

}  // namespace

void Control::Write(const StepInput& input) {
  elements_.assign(kElements, 0);
  elements_[kWeight] = static_cast<double>(*input.weight);
  elements_[kStops] = input.stop ? 1 : 0;
  elements_[kHasMore] = input.has_more ? 1 : 0;
  elements_.insert(elements_.end(), input.sums.begin(), input.sums.end());
}

void Control::WriteMarks(const Marks& marks, bool each, bool is_first_rank) {
  marks_ = elements_.size();
  elements_.push_back(marks.any() ? 1 : 0);
  elements_.push_back(marks.any() && is_first_rank ? 1 : 0);
  for (size_t i = 0; each && i < marks.size(); ++i) {
    elements_.push_back(marks.IsInStep(i) ? 1 : 0);
  }
}

StepResult Control::Read(const StepInput& input) const {
  StepResult result;
  result.weight = static_cast<int64_t>(elements_[kWeight]);
  result.stops = static_cast<int64_t>(elements_[kStops]);
  result.any_more = elements_[kHasMore] > 0;
  std::copy_n(elements_.begin() + kElements, input.sums.size(),
              input.sums.begin());
  return result;
}

bool Control::IsUsed(size_t parameter) const {
  return elements_[marks_] == 0 || elements_[marks_ + 2 + parameter] > 0;
}

}  // namespace lockstep::internal_gradients
