#include "lockstep/sampler/iteration_sampler.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {

absl::StatusOr<std::unique_ptr<IterationSampler>> IterationSampler::Create(
    std::unique_ptr<Sampler> sampler, int64_t num_iterations,
    int64_t start_iteration) {
  if (sampler == nullptr) {
    return absl::InvalidArgumentError(
        "an iteration sampler needs a sampler, but got none");
  }
  if (num_iterations < 0 || start_iteration < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_iterations and start_iteration must be 0 or more, but are ",
        num_iterations, " and ", start_iteration));
  }
  std::unique_ptr<IterationSampler> self(
      new IterationSampler(std::move(sampler), num_iterations));
  // There is nothing to search past the end.
  LOCKSTEP_RETURN_IF_ERROR(
      self->MoveTo(std::min(start_iteration, num_iterations)));
  return self;
}

absl::Status IterationSampler::MoveTo(int64_t iteration) {
  int empty = 0;
  for (int64_t epoch = 0;; ++epoch) {
    LOCKSTEP_RETURN_IF_ERROR(sampler_->StartEpoch(epoch));
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t steps, sampler_->StepsLeft());
    if (steps > iteration - iteration_) break;
    iteration_ += steps;
    empty = steps == 0 ? empty + 1 : 0;
    LOCKSTEP_RETURN_IF_ERROR(CheckEmptyEpochs(empty));
  }
  LOCKSTEP_RETURN_IF_ERROR(sampler_->PassSteps(iteration - iteration_));
  iteration_ = iteration;
  sampler_->progress_.steps_in_total = iteration;
  return absl::OkStatus();
}

// Epochs without steps may come between others, but not forever.
absl::Status IterationSampler::CheckEmptyEpochs(int empty) const {
  if (empty < 1000) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "1000 epochs in a row, up to epoch ", sampler_->progress().epoch, " of ",
      sampler_->order().Describe().ToString(),
      ", had no step, so that no number of iterations can be reached"));
}

absl::StatusOr<bool> IterationSampler::Next(BatchIndices& batch) {
  if (iteration_ >= num_iterations_) return false;
  for (int empty = 0;; ++empty) {
    LOCKSTEP_RETURN_IF_ERROR(CheckEmptyEpochs(empty));
    LOCKSTEP_ASSIGN_OR_RETURN(const bool more, sampler_->Next(batch));
    if (more) {
      ++iteration_;
      return true;
    }
    LOCKSTEP_RETURN_IF_ERROR(
        sampler_->StartEpoch(sampler_->progress().epoch + 1));
  }
}

absl::Status IterationSampler::RestoreState(absl::string_view bytes,
                                            const RestoreOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(sampler_->RestoreState(bytes, options));
  iteration_ = sampler_->progress().steps_in_total;
  return absl::OkStatus();
}

}  // namespace lockstep
