// The loops of a training. A training by epochs has two: Session::Epochs
// returns the epochs of a loader, and Session::Steps the steps of an epoch.
//
//   for (const int64_t epoch : session.Epochs(*train, options.epochs)) {
//     for (Step& step : session.Steps(*train, epoch)) {
//       for (const Batch& batch : step) {
//         LOCKSTEP_ASSIGN_OR_RETURN(const double loss,
//                                   model.AddGradients(batch));
//         step.Add("loss", loss);
//       }
//       LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
//       model.Update(options.learning_rate);
//     }
//   }
//
// A training by steps has one, which goes through the epochs by itself:
//
//   StepsOptions steps;
//   steps.max_steps = options.steps;
//   for (Step& step : session.Steps(*train, steps)) {
//     ...
//     LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
//     model.Update(RateOf(step.global_number()));
//     if (step.IsEvery(100)) {
//       LOCKSTEP_RETURN_IF_ERROR(session.Evaluate(*test, evaluate).status());
//     }
//   }
#ifndef LOCKSTEP_SESSION_STEP_H_
#define LOCKSTEP_SESSION_STEP_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/session/sums.h"

namespace lockstep {

class Session;

namespace internal_session {
class StepLoop;
struct Training;
}  // namespace internal_session

// The settings of a loop over steps that goes through epochs.
struct StepsOptions {
  // The loop ends after this number of steps of its loader, counted over all
  // loops, epochs and restarts. For a loader that was not made by MakeLoader,
  // the steps count that it has given out on the rank with the most. With 0,
  // the loop ends only when the training finishes, stops or fails, or when the
  // loader has reached its own max_steps.
  int64_t max_steps = 0;
};

// A step of a training: the batches of this rank, and the sums over all ranks.
// It has one batch, unless the loader's micro_batch_size or the shards of its
// sampler divide it into parts.
// A step that failed has no further batch, and Average returns why it failed.
// Thread-safety: thread-compatible.
class Step {
 public:
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Returns OK, or why this step has failed; a step that failed is the last
  // one. Average returns the same status. A trainer that does not call Average
  // checks the status here.
  const absl::Status& status() const { return status_; }

  int64_t epoch() const { return epoch_; }
  int64_t number() const { return number_; }  // in the epoch, from 0

  // The number of this step in the training, from 1, counted over all loaders,
  // epochs and restarts. It is steps() of the session when this step has ended.
  int64_t global_number() const { return global_number_; }

  // Returns true in every n-th step of the training: in steps n, 2 * n, and so
  // on. With n = 0 it is never true.
  bool IsEvery(int64_t n) const { return n > 0 && global_number_ % n == 0; }

  // The number of this step's batches. It is the same on all ranks, except with
  // a loader that was not made by MakeLoader.
  int64_t parts() const { return parts_; }

  // The range of this rank's batches, for one range-based for loop that goes to
  // its end. Gradients are added up over the batches of a step. The memory of a
  // batch is given back when the loop asks for the next one, or when the step
  // ends. A batch without data has no valid rows and needs no special
  // treatment. It is FAILED_PRECONDITION
  //   * to begin the loop twice
  //   * to go on with the next step when the loop was left early
  //   * to call Average before the last batch
  class Iterator {
   public:
    Batch& operator*() const { return *step_->batch_; }
    Batch* operator->() const { return step_->batch_; }
    Iterator& operator++();
    bool operator!=(const Iterator& other) const {
      return done() != other.done();
    }

   private:
    friend class Step;
    explicit Iterator(Step* step) : step_(step) {}
    bool done() const { return step_ == nullptr || step_->batch_ == nullptr; }

    Step* step_;
  };
  Iterator begin();
  Iterator end() { return Iterator(nullptr); }

  // Adds to a sum of this step, such as the loss of a batch's valid rows. The
  // session adds the sums of all ranks, and divides them by the total weight,
  // which makes a mean over all rows. Call it before Average, and for each
  // batch, including one without valid rows, because all ranks must add the
  // same names. If the job's gradients are exact, sums and weights are of the
  // batch's shard: call Add and AddWeight in the loop over the batches, and add
  // nothing but 0 for a batch whose shard is -1. A step has at most 1,000 sums.
  void Add(absl::string_view name, double sum);

  // The same for a sum that is divided by the sum of these weights, such as the
  // tokens of a batch. They must be finite and 0 or more.
  void Add(absl::string_view name, double sum, double weight);

  // Adds to the weight of this rank's gradients and sums: for instance, the
  // number of tokens of a batch, which must be 0 or more. If it is not called
  // in a step, the weight is the number of valid rows of the step's batches.
  // Call it before Average. In a step, it is called on all ranks that have rows
  // or on none, and if gradients are exact, for all batches that have rows or
  // for none. Otherwise the weight would count different things, so the step
  // fails with FAILED_PRECONDITION on all ranks.
  void AddWeight(int64_t weight);

  // The weight of this rank, from the batches so far. What enters the gradients
  // should come from total_weight() or a batch instead, since this depends on
  // the number of ranks.
  int64_t weight() const { return weight_; }

  // Averages the gradients with this step's weight (Gradients::Average), and
  // adds up the sums of the step. So the gradients that the trainer has added,
  // which are sums over rows, become means over the rows of all ranks. They are
  // 0 if no rank has a row. gradients.last() has their norm, and says whether
  // a step with a loss scale should be skipped. A trainer with several models
  // calls Average once for each.
  absl::Status Average(Gradients& gradients);

  // The total over all ranks, valid after Average and in OnStep. The session
  // writes the means to the log and to the job's metrics sinks.
  int64_t total_weight() const { return total_weight_; }
  absl::Span<const Metric> means() const { return means_; }
  // Returns the mean of that name. It is NaN if nothing of that name was added,
  // or if the total weight is 0.
  double mean(absl::string_view name) const { return ValueOf(means_, name); }

 private:
  friend class internal_session::StepLoop;

  Step() = default;

  internal_session::StepLoop* loop_ = nullptr;
  absl::Status status_;
  int64_t epoch_ = 0;
  int64_t number_ = 0;
  int64_t global_number_ = 0;
  int64_t parts_ = 0;
  Batch* batch_ = nullptr;  // in the loop over the batches, or else null
  int64_t weight_ = 0;
  int64_t total_weight_ = 0;
  absl::Span<const Metric> means_;
};

// The epochs that Session::Epochs returns, for one range-based for loop. The
// session and the loader must outlive it.
// Thread-safety: thread-compatible.
class EpochNumbers {
 public:
  // An iterator at one epoch. `!=` requires the end of the range on its right.
  // `++` ends the body of the loop for this epoch, whose code is then done.
  class Iterator {
   public:
    int64_t operator*() const { return epoch_; }
    Iterator& operator++();
    bool operator!=(const Iterator& end) const;

   private:
    friend class EpochNumbers;
    Iterator(const EpochNumbers* range, int64_t epoch)
        : range_(range), epoch_(epoch) {}

    const EpochNumbers* range_;
    int64_t epoch_;
  };

  ~EpochNumbers();

  EpochNumbers(const EpochNumbers&) = delete;
  EpochNumbers& operator=(const EpochNumbers&) = delete;

  Iterator begin() const { return {this, begin_}; }
  Iterator end() const { return {this, end_}; }

 private:
  friend class Session;
  EpochNumbers(internal_session::Training& training, const Loader& loader,
               int64_t begin, int64_t end)
      : training_(training), loader_(loader), begin_(begin), end_(end) {}

  bool BeginBody() const;

  internal_session::Training& training_;
  const Loader& loader_;
  const int64_t begin_;
  const int64_t end_;
};

// The steps that Session::Steps returns, for one range-based for loop. The loop
// begins with begin(); a range by itself does nothing.
// Requires: the session and the loader outlive it.
// Thread-safety: thread-compatible.
class StepRange {
 public:
  // An iterator at the range's current step. All iterators share that step.
  class Iterator {
   public:
    Step& operator*() const;
    Iterator& operator++();
    bool operator!=(const Iterator& other) const {
      return done() != other.done();
    }

   private:
    friend class StepRange;
    explicit Iterator(internal_session::StepLoop* loop) : loop_(loop) {}
    bool done() const;

    internal_session::StepLoop* loop_;
  };

  ~StepRange();

  StepRange(const StepRange&) = delete;
  StepRange& operator=(const StepRange&) = delete;

  Iterator begin();
  Iterator end() { return Iterator(nullptr); }

 private:
  friend class Session;
  explicit StepRange(std::unique_ptr<internal_session::StepLoop> loop);

  std::unique_ptr<internal_session::StepLoop> loop_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SESSION_STEP_H_
