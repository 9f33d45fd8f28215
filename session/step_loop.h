// A StepLoop is one loop over the steps of an epoch. It stands behind a
// StepRange. Internal.
#ifndef LOCKSTEP_SESSION_STEP_LOOP_H_
#define LOCKSTEP_SESSION_STEP_LOOP_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/loader/loader.h"
#include "lockstep/session/gradients.h"
#include "lockstep/session/phase.h"
#include "lockstep/session/step.h"
#include "lockstep/session/training.h"

namespace lockstep::internal_session {

// Requires: the training and the loader outlive it.
// Thread-safety: thread-compatible.
class StepLoop {
 public:
  StepLoop(Training& training, Loader& loader, int64_t epoch);

  // If a step has not ended, the trainer has left it.
  ~StepLoop();

  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  // Begins the loop and its first step, if there is one. A loop that may not
  // begin has one step, which has failed.
  void Begin();

  // Ends the step, and begins the next one.
  void Advance();

  // Returns true if the loop has no step any more.
  bool done() const { return done_; }
  Step& step() { return step_; }

  // ---- Calls of the trainer in a step.

  void Add(absl::string_view name, double sum, std::optional<double> weight);
  void SetWeight(int64_t weight);
  absl::Status Average(Gradients& gradients);

 private:
  void Close(bool is_over);
  absl::Status BeginEpoch();
  absl::Status EndEpoch();
  void NoteFirstStep();
  void NoteMissingAverage();
  // Begins the step of the current batch, or ends the epoch if no batch is
  // left.
  void Take();
  absl::Status BeginStep();
  absl::Status EndStep();
  void TakeSums(int64_t total_weight);
  void Report(SteadyTime ended);
  void Fail(const absl::Status& why);

  // Returns OK if a call that belongs to a step is allowed.
  absl::Status CheckInStep(Call call, absl::string_view name) const;
  absl::Status CheckNothingIsLost(const Gradients& gradients) const;
  absl::Status CheckNothingWasSet(const Gradients& gradients) const;
  absl::Status AverageOnHost(Gradients& gradients);
  absl::Status AverageOnDevice(Gradients& gradients);
  std::string NameOfStep(const Gradients* gradients) const;

  Training& training_;
  Loader& loader_;
  const int64_t epoch_;
  std::optional<EpochRange> batches_;
  std::optional<EpochRange::Iterator> at_;
  Step step_;
  bool is_open_ = false;  // this loop has begun
  bool done_ = false;

  // The numbers of the batch are kept here, since the trainer may have released
  // it.
  int64_t batch_epoch_ = 0;
  int64_t rows_ = 0;
  int64_t unread_ = 0;  // samples of this loop that could not be read
  bool is_weight_rows_ = true;
  Means means_;
  // The times when the step before this one ended, when the session asked for
  // this step's batch, and when the batch had come.
  SteadyTime before_, asked_, begun_;
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_STEP_LOOP_H_
