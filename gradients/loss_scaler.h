// A LossScaler changes the factor of losses whose gradients are small, as
// PyTorch's GradScaler does. Internal.
#ifndef LOCKSTEP_GRADIENTS_LOSS_SCALER_H_
#define LOCKSTEP_GRADIENTS_LOSS_SCALER_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/gradients/gradients_options.h"

namespace lockstep::internal_gradients {

// Thread-safety: thread-compatible.
class LossScaler {
 public:
  // Without options, the scale stays 1.
  explicit LossScaler(const std::optional<LossScale>& options);

  const LossScaleState& state() const { return state_; }

  // Returns what the ranks compare: "" without options.
  std::string Describe() const;

  // Notes a step whose gradients are finite.
  void Grow();

  // Makes the scale smaller, after a step whose gradients are not finite.
  // Returns false if there is no scale, or it can't be smaller.
  bool Shrink();

  absl::Status Restore(const LossScaleState& state);

 private:
  const std::optional<LossScale> options_;
  LossScaleState state_;
};

}  // namespace lockstep::internal_gradients

#endif  // LOCKSTEP_GRADIENTS_LOSS_SCALER_H_
