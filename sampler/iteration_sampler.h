// Training by a number of iterations instead of epochs: epoch after epoch,
// until that many steps are taken.
//
//   auto iterations = IterationSampler::Create(
//       std::move(sampler), /*num_iterations=*/90000,
//       /*start_iteration=*/60000);
//   BatchIndices batch;
//   while (*iterations->Next(batch)) ...
//
// Starting in the middle goes on where an uninterrupted job would be, in the
// same epoch and at the same step.
#ifndef LOCKSTEP_SAMPLER_ITERATION_SAMPLER_H_
#define LOCKSTEP_SAMPLER_ITERATION_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {

// Thread-safety: thread-compatible.
class IterationSampler {
 public:
  // Epochs begin at 0. FAILED_PRECONDITION for a sampler whose epochs have no
  // step, INVALID_ARGUMENT for numbers below 0.
  static absl::StatusOr<std::unique_ptr<IterationSampler>> Create(
      std::unique_ptr<Sampler> sampler, int64_t num_iterations,
      int64_t start_iteration = 0);

  // Fills `batch` with the next step, or returns false after num_iterations.
  absl::StatusOr<bool> Next(BatchIndices& batch);

  // Goes on where a state of sampler() was saved, at any world and batch size.
  // The state's steps are the iterations.
  absl::Status RestoreState(absl::string_view bytes,
                            const RestoreOptions& options = {});

  // The next step's number.
  int64_t iteration() const { return iteration_; }
  int64_t num_iterations() const { return num_iterations_; }
  const Sampler& sampler() const { return *sampler_; }

 private:
  IterationSampler(std::unique_ptr<Sampler> sampler, int64_t num_iterations)
      : sampler_(std::move(sampler)), num_iterations_(num_iterations) {}

  absl::Status MoveTo(int64_t iteration);
  absl::Status CheckEmptyEpochs(int empty) const;

  const std::unique_ptr<Sampler> sampler_;
  const int64_t num_iterations_;
  int64_t iteration_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_ITERATION_SAMPLER_H_
