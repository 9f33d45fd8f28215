#include "lockstep/gradients/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/gradients/gradients_options.h"

namespace lockstep::internal_gradients {
namespace {

constexpr double kLeast = 0x1p-24;
// Losses are floats.
constexpr double kMost = std::numeric_limits<float>::max();

}  // namespace

LossScaler::LossScaler(const std::optional<LossScale>& options)
    : options_(options) {
  if (options_.has_value()) state_.scale = options_->initial;
}

std::string LossScaler::Describe() const {
  if (!options_.has_value()) return "";
  return absl::StrCat(", loss scale ", state_.scale, " after ",
                      state_.good_steps, " steps");
}

void LossScaler::Grow() {
  if (!options_.has_value()) return;
  if (++state_.good_steps < options_->growth_steps) return;
  state_.good_steps = 0;
  const double grown = state_.scale * options_->growth;
  if (grown <= kMost) state_.scale = grown;
}

bool LossScaler::Shrink() {
  if (!options_.has_value() || state_.scale <= kLeast) return false;
  state_.scale = std::max(state_.scale * options_->backoff, kLeast);
  state_.good_steps = 0;
  return true;
}

absl::Status LossScaler::Restore(const LossScaleState& state) {
  if (!(state.scale > 0) || !(state.scale <= kMost) || state.good_steps < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a loss scale of ", state.scale, " after ", state.good_steps,
        " good steps is not one: the scale should be a positive float"));
  }
  if (!options_.has_value()) {
    return absl::FailedPreconditionError(
        "there is no loss scale to restore: set GradientsOptions::loss_scale");
  }
  state_ = state;
  return absl::OkStatus();
}

}  // namespace lockstep::internal_gradients
