// Trains by a number of iterations instead of epochs. It continues with the
// next epoch until it has taken that many steps.
//
//   auto iterations = IterationSampler::Create(
//       std::move(sampler), /*num_iterations=*/90000,
//       /*start_iteration=*/60000);
//   BatchIndices batch;
//   while (*iterations->Next(batch)) ...
//
// A start in the middle continues as an uninterrupted job would, in the same
// epoch and at the same step.
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

// Counts the steps of a Sampler over all epochs.
// Thread-safety: thread-compatible.
class IterationSampler {
 public:
  // Begins at epoch 0 and moves to the start iteration. INVALID_ARGUMENT for
  // negative numbers. FAILED_PRECONDITION if 1000 epochs in a row have no
  // steps.
  static absl::StatusOr<std::unique_ptr<IterationSampler>> Create(
      std::unique_ptr<Sampler> sampler, int64_t num_iterations,
      int64_t start_iteration = 0);

  // Fills `batch` with the next step, or returns false after num_iterations
  // steps.
  absl::StatusOr<bool> Next(BatchIndices& batch);

  // Continues from a saved state of sampler(), with any world and batch size,
  // as Sampler::RestoreState does. The iteration is the number of steps in the
  // state.
  absl::Status RestoreState(absl::string_view bytes,
                            const RestoreOptions& options = {});

  // Returns the number of the next step.
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
