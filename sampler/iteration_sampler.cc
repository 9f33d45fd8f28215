#include "lockstep/sampler/iteration_sampler.h"

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
  LOCKSTEP_RETURN_IF_ERROR(self->MoveTo(start_iteration));
  return self;
}

absl::Status IterationSampler::MoveTo(int64_t iteration) {
  for (int64_t epoch = 0;; ++epoch) {
    LOCKSTEP_RETURN_IF_ERROR(sampler_->StartEpoch(epoch));
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t steps, sampler_->StepsLeft());
    if (steps == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "epoch ", epoch, " of ", sampler_->order().Describe().ToString(),
          " has no step, so that no number of iterations can be "
          "reached"));
    }
    if (iteration_ + steps > iteration) break;
    iteration_ += steps;
  }
  BatchIndices batch;
  for (; iteration_ < iteration; ++iteration_) {
    LOCKSTEP_RETURN_IF_ERROR(sampler_->Next(batch).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> IterationSampler::Next(BatchIndices& batch) {
  if (iteration_ >= num_iterations_) return false;
  // An epoch without a step may follow others that had some, but not for ever.
  for (int empty = 0; empty < 1000; ++empty) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool more, sampler_->Next(batch));
    if (more) {
      ++iteration_;
      return true;
    }
    LOCKSTEP_RETURN_IF_ERROR(
        sampler_->StartEpoch(sampler_->progress().epoch + 1));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "1000 epochs without a step, up to epoch ", sampler_->progress().epoch));
}

}  // namespace lockstep
