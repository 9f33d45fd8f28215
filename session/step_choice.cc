#include "lockstep/session/step_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
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
  const std::optional<size_t> slow = ClassOf(seconds);
  double more = 0.1;
  for (double& allowed : allowed_) {
    allowed = std::min(kMostSlow, allowed + more);
    more /= 2;
  }
  if (steps_ <= kFirst) return StepEvents::Why::kFirst;
  if (slow.has_value() && allowed_[*slow] >= 1) {
    allowed_[*slow] -= 1;
    return StepEvents::Why::kSlow;
  }
  if (step % kEvery == 0) return StepEvents::Why::kSample;
  if (slow.has_value()) ++dropped_;
  return std::nullopt;
}

// Compares the step with the last ones, to which it then belongs.
std::optional<size_t> StepChoice::ClassOf(double seconds) {
  std::optional<size_t> slow;
  if (median_ > 0 && seconds > kSlow * median_) {
    const double doublings = std::log2(seconds / (kSlow * median_));
    slow = static_cast<size_t>(std::min(doublings, kClasses - 1.0));
  }
  last_[static_cast<size_t>(steps_) % kLast] = seconds;
  ++steps_;
  const auto known = std::min(static_cast<size_t>(steps_), kLast);
  if (static_cast<size_t>(steps_) % kRenew == 0) {
    std::array<double, kLast> sorted = last_;
    auto* const middle = sorted.begin() + known / 2;
    std::nth_element(sorted.begin(), middle, sorted.begin() + known);
    median_ = *middle;
  }
  return slow;
}

int64_t StepChoice::TakeDropped() { return std::exchange(dropped_, 0); }

}  // namespace lockstep::internal_session
