// A StepLoop is one loop over the steps of an epoch, or of all epochs. It
// stands behind a StepRange. Internal.
#ifndef LOCKSTEP_SESSION_STEP_LOOP_H_
#define LOCKSTEP_SESSION_STEP_LOOP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/session/phase.h"
#include "lockstep/session/shard_sums.h"
#include "lockstep/session/step.h"
#include "lockstep/session/step_report.h"
#include "lockstep/session/training.h"
#include "lockstep/session/uneven_steps.h"

namespace lockstep::internal_session {

// Requires: the training and the loader outlive it.
// Thread-safety: thread-compatible.
class StepLoop {
 public:
  // A loop over the steps of one epoch.
  StepLoop(Training& training, Loader& loader, int64_t epoch);

  // A loop over the steps of all epochs that are left.
  StepLoop(Training& training, Loader& loader, const StepsOptions& options);

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

  // Begin and continue the loop over the batches of the step.
  void BeginParts();
  void NextPart();

  void Add(absl::string_view name, double sum, std::optional<double> weight);
  void AddWeight(int64_t weight);
  absl::Status Average(Gradients& gradients);

 private:
  // Ends the steps of the epoch.
  void Close(bool is_over);

  // ---- Epochs.

  absl::Status CheckGoesThrough() const;
  absl::Status GoToFirstEpoch();
  bool HasNextEpoch();
  // Returns the number of steps that loops over the loader have done.
  int64_t StepsOfLoader() const;
  // Returns how many more steps max_steps allows: that of this loop, or that of
  // the loader if it allows fewer.
  int64_t MostLeft() const;
  // Returns true if this rank has the next batch.
  bool HasBatch() { return batches_.has_value() && *at_ != batches_->end(); }
  // Returns true if the epoch has a further step.
  bool HasStep() {
    return uneven_.has_value() ? uneven_->has_step() : HasBatch();
  }
  // Returns true if the loader has a batch left in its epoch or, if it goes
  // through epochs by itself, before its own max_steps.
  absl::StatusOr<bool> HasMoreToRead() const;
  // Begins the epoch. It is not open afterwards if it has no steps because the
  // trainer had left it.
  absl::Status Open();
  absl::Status BeginEpoch();
  absl::Status EndEpoch();
  void NoteFirstStep();
  void NoteMissingAverage();

  // ---- Steps.

  bool is_exact() const { return training_.job.gradients.exact; }
  // Goes to the next step. It may be in a later epoch. If there is none, the
  // loop is done.
  absl::Status GoOn();
  // Return the first batch of the next step, or one without rows if this rank
  // has none.
  absl::StatusOr<Batch*> FirstBatch();
  absl::StatusOr<Batch*> EmptyBatch();
  absl::Status BeginStep();
  // Adds a batch that has come to the step. It should be that part.
  absl::Status TakePart(Batch& batch, int64_t part);
  absl::Status ReadNextPart();
  // Gives the sums of the present part to its shard.
  absl::Status EndPart();
  WeightSources SourcesOfWeight() const;
  // The present shard has ended: watches the gradients of all models.
  void EndShard();
  // The same for the last shard and one model, which is averaged now.
  void EndLastShard(const Gradients& averaged);
  // Returns OK if all batches of the step have come.
  absl::Status CheckAllParts(absl::string_view before) const;
  absl::Status EndStep();
  void TakeSums(int64_t total_weight);
  void Report(SteadyTime ended);
  void Fail(const absl::Status& why);

  // ---- Calls of the trainer in a step.

  // Returns OK if a call that belongs to a step is allowed.
  absl::Status CheckInStep(Call call, absl::string_view name) const;
  // The same for a call that gives something to the present part.
  absl::Status CheckInPart(absl::string_view name) const;
  std::string NameOfStep() const;
  // Adds the step to an error about gradients.
  absl::Status InStep(const absl::Status& error) const;

  Training& training_;
  Loader& loader_;
  const bool goes_through_ = false;  // this loop goes through epochs
  const int64_t max_steps_ = 0;
  int64_t epoch_ = 0;
  std::optional<EpochRange> batches_;
  std::optional<EpochRange::Iterator> at_;
  std::optional<UnevenSteps> uneven_;  // of a loader that is not the session's
  Batch empty_;                        // of a step in which this rank has none
  Step step_;
  bool is_open_ = false;  // the epoch has begun and has not ended
  bool done_ = false;
  bool is_paused_ = false;     // this loop ends in the middle of an epoch
  bool was_restored_ = false;  // this epoch goes on from a checkpoint
  bool had_steps_ = false;     // this epoch had a step in this loop

  Batch* batch_ = nullptr;        // the last batch that has come
  int64_t part_ = 0;              // its number
  bool has_begun_parts_ = false;  // the trainer loops over the batches
  int64_t rows_ = 0;              // valid rows of the batches so far
  ShardSums sums_;                // that the trainer has added in this step
  int64_t unread_ = 0;            // samples of this loop that could not be read
  bool is_weight_rows_ = true;
  bool has_part_weight_ = false;  // AddWeight was called for the present part
  WeightSources sources_;         // of all parts
  // If gradients are exact, the shard of the present part, and the weight of
  // the shards before it.
  int64_t shard_ = -1, weight_before_ = 0;
  Means means_;
  // The times when the step before this one ended, and when the session asked
  // for this step's first batch.
  SteadyTime before_, asked_;
  absl::Duration blocked_before_;  // TimeBlocked when asked_ was
  // The waits for the batches of this step, and its calls of Average.
  std::vector<StepReport::Interval> waits_, averages_;
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_STEP_LOOP_H_
