// A SampleLedger proves that a training gives each sample to one rank, once an
// epoch, whatever happens to its ranks. It is a hook for a Session whose steps
// read one loader, epoch by epoch, of which no sample is to be left out:
//
//   SampleLedger ledger("train");
//   options.hooks = {&ledger};  // of the session
//
// All ranks tell each other after each step which samples they had, so that
// each of them knows of all. What they know is in the job's checkpoints, and
// goes on from there on any number of ranks.
#ifndef LOCKSTEP_EXAMPLES_TRAINER_SAMPLE_LEDGER_H_
#define LOCKSTEP_EXAMPLES_TRAINER_SAMPLE_LEDGER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/session.h"

namespace trainer {

class SampleLedger : public lockstep::SessionHooks {
 public:
  // `loader` is what the job calls the loader of the training.
  explicit SampleLedger(std::string loader) : loader_(std::move(loader)) {}

  // Learns how many samples the loader's dataset has.
  absl::Status OnStart(lockstep::Session& session) override;
  absl::Status OnEpochBegin(lockstep::Session& session, int64_t epoch) override;
  absl::Status OnStep(lockstep::Session& session,
                      const lockstep::Step& step) override;

  // DATA_LOSS names a sample that did not come once in the epoch, or an epoch
  // that was left out.
  absl::Status OnEpochEnd(lockstep::Session& session, int64_t epoch) override;

  int64_t samples() const { return static_cast<int64_t>(times_seen_.size()); }

  // The number of epochs in which each sample came once.
  int64_t proven_epochs() const { return proven_epochs_; }

 private:
  std::string Save() const;
  absl::Status Load(absl::string_view bytes);

  const std::string loader_;

  int64_t epoch_ = -1;
  std::vector<int64_t> times_seen_;  // each sample in this epoch
  int64_t proven_epochs_ = 0;
};

}  // namespace trainer

#endif  // LOCKSTEP_EXAMPLES_TRAINER_SAMPLE_LEDGER_H_
