#include "lockstep/examples/trainer/ema.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/session/session.h"

namespace trainer {

using lockstep::GradientView;

Ema::Ema(lockstep::Gradients& gradients, float decay)
    : gradients_(gradients), decay_(decay) {
  for (const GradientView& view : gradients.views()) {
    const absl::Span<float> values = lockstep::SpanOf<float>(view.values);
    averages_.emplace_back(values.begin(), values.end());
  }
}

absl::Status Ema::AddStateTo(lockstep::Session& session) {
  LOCKSTEP_RETURN_IF_ERROR(
      session.AddState("ema updates", lockstep::BufferOf(&updates_, 1)));
  for (size_t i = 0; i < averages_.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(session.AddState(
        absl::StrCat("ema/", gradients_.views()[i].name), &averages_[i]));
  }
  return absl::OkStatus();
}

void Ema::Update() {
  const float decay = updates_++ == 0 ? 0 : decay_;
  for (size_t i = 0; i < averages_.size(); ++i) {
    const absl::Span<float> values =
        lockstep::SpanOf<float>(gradients_.views()[i].values);
    for (size_t j = 0; j < values.size(); ++j) {
      float& average = averages_[i][j];
      average += (1 - decay) * (values[j] - average);
    }
  }
}

void Ema::Swap() {
  for (size_t i = 0; i < averages_.size(); ++i) {
    const absl::Span<float> values =
        lockstep::SpanOf<float>(gradients_.views()[i].values);
    std::swap_ranges(values.begin(), values.end(), averages_[i].begin());
  }
}

}  // namespace trainer
