#include "lockstep/session/step_choice.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "lockstep/metrics/records.h"

namespace lockstep::internal_session {
namespace {

// The number of steps after which the median is computed anew.
constexpr size_t kRenew = 16;

}  // namespace

std::optional<StepEvents::Why> StepChoice::Choose(int64_t step,
                                                  double seconds) {
  const bool is_slow = IsSlow(seconds);
  allowed_ = std::min(kMostSlow, allowed_ + 0.1);
  if (steps_ <= kFirst) return StepEvents::Why::kFirst;
  if (is_slow && allowed_ >= 1) {
    allowed_ -= 1;
    return StepEvents::Why::kSlow;
  }
  if (step % kEvery == 0) return StepEvents::Why::kSample;
  if (is_slow) ++dropped_;
  return std::nullopt;
}

// Compares the step with the last ones, to which it then belongs.
bool StepChoice::IsSlow(double seconds) {
  const bool is_slow = median_ > 0 && seconds > kSlow * median_;
  last_[static_cast<size_t>(steps_) % kLast] = seconds;
  ++steps_;
  const auto known = std::min(static_cast<size_t>(steps_), kLast);
  if (static_cast<size_t>(steps_) % kRenew == 0) {
    std::array<double, kLast> sorted = last_;
    auto* const middle = sorted.begin() + known / 2;
    std::nth_element(sorted.begin(), middle, sorted.begin() + known);
    median_ = *middle;
  }
  return is_slow;
}

int64_t StepChoice::TakeDropped() { return std::exchange(dropped_, 0); }

}  // namespace lockstep::internal_session
