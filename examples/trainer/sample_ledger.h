// A SampleLedger proves that a training gives each sample to exactly one rank
// once in each epoch, even if ranks fail. It is a hook for a Session whose
// steps read one loader, epoch by epoch, without leaving samples out:
//
//   SampleLedger ledger("train");
//   options.hooks = {&ledger};  // of the session
//
// After each step, the ranks exchange the samples that they had, so each rank
// knows all of them. This state is in the job's checkpoints, and any number of
// ranks can continue from it.
#ifndef LOCKSTEP_EXAMPLES_TRAINER_SAMPLE_LEDGER_H_
#define LOCKSTEP_EXAMPLES_TRAINER_SAMPLE_LEDGER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/loader/batch.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/session.h"

namespace trainer {

// Requires: the session calls it on all ranks.
// Thread-safety: thread-compatible.
class SampleLedger : public lockstep::SessionHooks {
 public:
  // `loader` is the name of the training's loader in the job.
  explicit SampleLedger(std::string loader) : loader_(std::move(loader)) {}

  // Gets the number of samples of the loader's dataset, and adds the state.
  absl::Status OnStart(lockstep::Session& session) override;
  absl::Status OnEpochBegin(lockstep::Session& session, int64_t epoch) override;
  absl::Status OnBatch(lockstep::Session& session, const lockstep::Step& step,
                       const lockstep::Batch& batch) override;
  absl::Status OnStep(lockstep::Session& session,
                      const lockstep::Step& step) override;

  // Returns DATA_LOSS, with the sample or the epoch, if a sample did not come
  // exactly once, or if an epoch was left out.
  absl::Status OnEpochEnd(lockstep::Session& session, int64_t epoch) override;

  int64_t samples() const { return static_cast<int64_t>(times_seen_.size()); }

  // The number of epochs in which each sample came once.
  int64_t proven_epochs() const { return proven_epochs_; }

 private:
  std::string Save() const;
  absl::Status Load(absl::string_view bytes);

  const std::string loader_;

  std::vector<int64_t> mine_;  // the samples of this rank in this step
  int64_t epoch_ = -1;
  std::vector<int64_t> times_seen_;  // of each sample, in this epoch
  int64_t proven_epochs_ = 0;
};

}  // namespace trainer

#endif  // LOCKSTEP_EXAMPLES_TRAINER_SAMPLE_LEDGER_H_
