// A Loader turns the steps of a sampler into batches, ahead of their use, on
// workers.
//
//   LoaderOptions options;
//   options.num_workers = 4;
//   options.seed = 7;
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       std::unique_ptr<Loader> loader,
//       Loader::Create(dataset, std::move(sampler), options));
//   if (!saved.empty()) {
//     LOCKSTEP_RETURN_IF_ERROR(loader->RestoreState(saved));
//   }
//   for (int64_t epoch = loader->progress().epoch; epoch < 90; ++epoch) {
//     for (absl::StatusOr<Batch>& batch : loader->Epoch(epoch)) {
//       LOCKSTEP_RETURN_IF_ERROR(batch.status());
//       Train(*batch);
//       if (!TimeToSave()) continue;
//       LOCKSTEP_ASSIGN_OR_RETURN(const std::string state,
//                                 loader->SaveState());
//       Save(state);
//     }
//   }
//
// With micro_batch_size, or if the sampler has shards (CutOptions::shards), a
// step is several batches, and ends with the one whose part() is its last.
//
// A new loader begins with epoch 0. A restored one goes on after the last step
// that was given out whole before SaveState, in the middle of an epoch or at
// its end. An error is the last element of its loop, so a trainer returns it.
// The body of the loop over epochs again, without a range:
//
//   LOCKSTEP_RETURN_IF_ERROR(loader->GoToEpoch(epoch));
//   Batch batch;
//   while (true) {
//     LOCKSTEP_ASSIGN_OR_RETURN(const bool more, loader->Next(batch));
//     if (!more) break;
//     Train(batch);
//   }
//
// A trainer of one rank that can do without some steps looks at the kind of a
// result, and goes on:
//
//   while (true) {
//     const NextResult next = loader->Next(batch);
//     if (next.kind() == NextKind::kEnd) break;
//     if (next.kind() == NextKind::kFailedStep) {
//       Log(next.status());
//       continue;
//     }
//     LOCKSTEP_RETURN_IF_ERROR(next.status());
//     Train(batch);
//   }
//
// If steps have parts, it also throws away the gradients of earlier parts of
// the step that has failed. Where there are other ranks, they wait for this one
// in the collectives of the step, so a trainer leaves out samples by
// OnError::kSkip instead.
//
// The batches have the same bytes with any number and kind of workers, with any
// prefetching, and after any restart.
#ifndef LOCKSTEP_LOADER_LOADER_H_
#define LOCKSTEP_LOADER_LOADER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/loader/metrics.h"
#include "lockstep/loader/sample_error.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/skip_ranges.h"
#include "lockstep/sampler/state.h"

namespace lockstep {

class EpochRange;

namespace internal_loader {
struct Entry;
class Meter;
class Pipeline;
class SlotPool;
}  // namespace internal_loader

// NextKind says what a call of Next has given.
enum class NextKind {
  kBatch,  // The next step, or the next part of it.
  // Nothing is left of the epoch, or of max_steps, or all steps that were begun
  // before Drain have been given out.
  kEnd,
  // One step is lost, with all of its samples, and the next call gives the step
  // after it. The status is the error of a sample, of collate or of
  // BatchMemory.
  kFailedStep,
  // No step is lost, and the call can be repeated when its reason is gone.
  //   DEADLINE_EXCEEDED    options.timeout has passed
  //   RESOURCE_EXHAUSTED   the caller holds every batch, so there was no wait
  //   CANCELLED            the function of GiveUpWhen has returned true
  //   UNAVAILABLE          in TryNext alone: the batch is not ready yet
  kTryAgain,
  // The loader gives nothing until StartEpoch or RestoreState is called, or, if
  // ok() is false, for ever. The status is
  //   FAILED_PRECONDITION  before the first such call, in a forked process, and
  //                        in later calls after an error of the order
  //   OUT_OF_RANGE         the epoch is over, or max_steps, after which only
  //                        RestoreState helps
  //   any code             the error of the order, or that of a loader that
  //                        must be made anew
  kStopped,
};

// The result of Next: true with a batch, false at the end, or an error. Decide
// by kind() and not by the code, since a sample may fail with any code.
class [[nodiscard]] NextResult : public absl::StatusOr<bool> {
 public:
  // `kind` is kBatch or kEnd.
  explicit NextResult(NextKind kind)
      : absl::StatusOr<bool>(kind == NextKind::kBatch), kind_(kind) {}
  // `kind` is one of the others.
  NextResult(NextKind kind, absl::Status error)
      : absl::StatusOr<bool>(std::move(error)), kind_(kind) {}

  NextKind kind() const { return kind_; }

 private:
  NextKind kind_;
};

// Gives out the batches of one rank, in the order of its sampler unless
// LoaderOptions::delivery says otherwise.
// Guarantees: every step ends as its batches or as an error of Next, unless the
// caller starts another epoch, restores a state or skips it, or the loader
// fails for good.
// Thread-safety: thread-compatible. Batches may be released on any thread, and
// Metrics may be called on any thread. A loader may also be used inside Read,
// collate or worker_init of another one: if both use TBB's workers, the worker
// that waits for the inner loader reads its samples itself.
class Loader {
 public:
  // Returns a loader, or INVALID_ARGUMENT that names the option or field that
  // is wrong. The epoch and position of `sampler` do not matter.
  static absl::StatusOr<std::unique_ptr<Loader>> Create(
      std::shared_ptr<Dataset> dataset, std::unique_ptr<Sampler> sampler,
      const LoaderOptions& options = {});

  // Returns the fields of the batches of such a loader: those of the dataset,
  // or those of packed rows if the order packs (packed.h).
  static absl::StatusOr<std::vector<FieldSpec>> BatchFields(
      const Dataset& dataset, const Order& order);

  // Waits for the samples that are being read, and for nothing else. If the
  // last wait of Next was given up or timed out, the destructor does not wait
  // for them either: their workers keep the dataset, whose Read they are in,
  // until the process ends, and call nothing else of the caller's. Batches that
  // the caller holds stay valid.
  ~Loader();

  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Goes to the start of an epoch (0 or more) from any place, and begins to
  // read it, so that the first batch is made while the trainer is still
  // starting. What is left of the present epoch is given up. After the end of
  // epoch e, StartEpoch(e + 1) keeps the batches that were read ahead.
  absl::Status StartEpoch(int64_t epoch);

  // Goes to an epoch, and loses no step that the trainer may still want: goes
  // on with the present epoch if its place is kept, and calls StartEpoch
  // otherwise. RestoreState, Drain and KeepPlace keep the place. After `break`
  // it is not kept, so the same epoch is read anew, and any other one may
  // follow. FAILED_PRECONDITION if
  //   * the place is kept, in another epoch, of which steps are left
  //   * a range has ended at an error, and KeepPlace was not called since
  //   * the order has failed
  // StartEpoch helps in each case. With advance_epochs, any epoch up to the
  // present one goes on with the place that is kept.
  absl::Status GoToEpoch(int64_t epoch);

  // Releases what `batch` holds, whatever the result. Fills it with the next
  // step and returns true; or returns false at the end of the epoch; or returns
  // an error, whose kind says whether a step is lost. (The order of an epoch
  // that is read ahead also fails here, and not in StartEpoch. The end of an
  // epoch, like a batch, comes only while the caller does not hold every
  // batch.)
  NextResult Next(Batch& batch);

  // Does the same without waiting. (Without workers, it reads the batch now.)
  NextResult TryNext(Batch& batch);

  // Has Next call this function while it waits for a batch, some twenty times a
  // second and on the thread that called Next, with the time that it has waited
  // so far. When the function returns true, or throws, Next returns CANCELLED,
  // and a trainer leaves its loop. A trainer that is asked to stop needs this
  // beside its own look at the flag in the loop, since data may come late or
  // never:
  //
  //   std::atomic<bool> stop = false;  // of the program; a signal sets it
  //   ...
  //   loader->GiveUpWhen([](absl::Duration waited) {
  //     return stop && waited >= absl::Seconds(20);  // data may be slow
  //   });
  //
  // Objects that the function uses must live until it is replaced, or until the
  // loader is destroyed; nullptr removes it. It is not called without workers,
  // since Next then reads and does not wait, nor by TryNext. A loader of
  // Session::MakeLoader has such a function: after a request to stop, it waits
  // for the job's stop.patience.
  void GiveUpWhen(std::function<bool(absl::Duration waited)> is_enough);

  // Calls GoToEpoch and returns what is left of the epoch as a range: all of it
  // unless a place was kept, and perhaps nothing. An error, also of GoToEpoch,
  // is the last element. (With advance_epochs, one range goes through all
  // epochs.)
  EpochRange Epoch(int64_t epoch);

  // Keeps the place in the present epoch, also between two parts of a step, for
  // the next call of Epoch or GoToEpoch. So another loop can go on where one
  // was left by `break` or has ended at an error. After a call of Next has
  // returned kEnd, it does nothing.
  void KeepPlace();

  // Returns a batch of a step without rows, as the trainer would get it: its
  // fields have no elements, and collate was called. It is for a rank whose
  // data has ended, in the steps of other ranks. It is not a step of this
  // loader.
  absl::StatusOr<Batch> EmptyBatch(int64_t epoch, int64_t step);

  // Returns the samples that failed the step for which Next has just returned
  // an error.
  absl::Span<const SampleError> errors() const { return errors_; }

  // Returns OK, or the reason why Next fails from now on, whatever is called:
  // for instance, worker_init failed, or more than max_failures samples failed.
  const absl::Status& status() const { return failure_; }
  bool ok() const { return state_ != State::kFailed; }

  // Returns the place of the job: after the last step that Next gave out whole,
  // or, with Delivery::kAsReady, after the last step before which none is
  // missing. A step that has failed counts as given out. A new loader is at the
  // start of epoch 0.
  const SamplerProgress& progress() const;

  // Returns true if Next has given out some parts of a step, and not its last
  // one. progress() is then the beginning of the step.
  bool in_step() const { return is_in_step_; }

  // Returns true if Next has returned false at the end of the present epoch.
  // The state of a loader does not contain this: after RestoreState at the end
  // of an epoch, Next returns false once more.
  bool over() const {
    return state_ == State::kEnded || state_ == State::kFinished;
  }

  // Returns how many steps Next has still to give out in the present epoch,
  // whatever was read ahead. A step counts until its last part was given out.
  // max_steps may leave fewer than the epoch has.
  // Before the first StartEpoch or RestoreState, the present epoch is 0. Each
  // call opens the order's epoch, and reads through an order that groups, so
  // call it once an epoch and not at each step.
  absl::StatusOr<int64_t> StepsLeft() const;

  // Returns 168 bytes, and 16 more for each range to skip. Any loader over the
  // same order, with the same seed and as many shards, can go on from them, on
  // any number of ranks and workers. FAILED_PRECONDITION before the first
  // StartEpoch or RestoreState, and if batches were given out of order and one
  // before them was not: call Drain first, and read until Next returns false.
  absl::StatusOr<std::string> SaveState() const;

  // Goes to the place where a state was saved, keeps it, and begins to read.
  // Next and Epoch(progress().epoch) go on from there. The state of a Sampler
  // is accepted as well, for instance that of an IterationSampler at its start
  // (with advance_epochs and max_steps, a loader counts iterations). If the
  // bytes are wrong or of another order, the error changes nothing.
  absl::Status RestoreState(absl::string_view bytes,
                            const RestoreOptions& options = {});

  // Leaves out positions [begin, end) of the present epoch's stream, none of
  // which may have been given out. Every rank must do the same. Batches that
  // were read ahead are read anew. FAILED_PRECONDITION between the parts of a
  // step.
  absl::Status Skip(int64_t begin, int64_t end);

  // Begins no more steps, and keeps the place. Next gives out the steps that
  // were begun, with all of their parts, and then returns false, whatever is
  // left of the epoch; a state can then be saved with any delivery. The next
  // call of Next goes on with the epoch, and so does Epoch of the same epoch.
  // (If the epoch was at its end, Next returns false once more, and Epoch is
  // empty.) So a loop over epochs that drains goes on until the epoch is over:
  //
  //   do {
  //     for (auto& batch : loader->Epoch(epoch)) {
  //       LOCKSTEP_RETURN_IF_ERROR(batch.status());
  //       ...
  //       if (TimeToSave()) loader->Drain();
  //     }
  //     LOCKSTEP_ASSIGN_OR_RETURN(const std::string state,
  //                               loader->SaveState());
  //     Save(state);
  //   } while (!loader->over());
  void Drain();

  // Returns how many samples the workers can read at the same time:
  // num_workers, or fewer if the system did not start a thread for each (then
  // it is one less than the system starts, so that the program can start
  // another one), or if a limit of the host's leaves TBB fewer workers. The
  // number may fall later.
  int available_workers() const;

  // May be called on any thread.
  LoaderMetrics Metrics() const;

  // Returns how many batches are ready at this moment. Only the thread that
  // calls Next may call it.
  int64_t ReadyBatches() const;

  // Keeps at least the last so many events from now on, of 56 bytes each, for
  // the next functions. options.trace_events does it from the start. May be
  // called on any thread.
  void KeepEvents(int64_t least);

  // Returns what was done for a step, as far as it is kept. Cheap samples are
  // timed in chunks, and only some of the chunks. The number of lost events is
  // known until Next is called for the next step. May be called on any thread.
  LoaderEvents EventsOf(int64_t epoch, int64_t step) const;

  // Returns the events that are kept, in the format of chrome://tracing.
  std::string Trace() const;

  const Dataset& dataset() const { return *dataset_; }
  // Return the order and the options of the sampler.
  const Order& order() const;
  const SamplerOptions& sampler_options() const;
  // Returns the options, with num_workers and base_seed filled in if they were
  // unset.
  const LoaderOptions& options() const { return options_; }

 private:
  friend class EpochRange;

  // The state that decides what Next and GoToEpoch do. From each state but
  // kFailed, StartEpoch leads to kRunning, and RestoreState to kKept; if the
  // order fails then, kNew stays as it is, and any other state becomes
  // kStopped. A Skip that goes well changes no state.
  enum class State {
    kNew,          // StartEpoch and RestoreState have not gone well yet.
    kRunning,      // Next gives out batches, from here to kDraining.
    kKept,         // The same. GoToEpoch makes it kRunning, and goes on.
    kInterrupted,  // The same. A range has ended at an error.
    kDraining,     // Drain was called in one of these. It is kKept once Next
                   // has returned false.
    kEnded,        // Next has returned false at the end of the epoch.
    kFinished,     // Next has returned false after max_steps.
    kStopped,      // The order has failed, or has had no step for many epochs.
    kFailed,       // status() says why. There is no way out.
  };

  static absl::StatusOr<std::unique_ptr<Loader>> Make(
      const std::shared_ptr<Dataset>& dataset, std::unique_ptr<Sampler> sampler,
      const LoaderOptions& options);
  Loader(std::shared_ptr<Dataset> dataset, const LoaderOptions& options,
         const OrderDescription& order);

  absl::Status GoOn(int64_t epoch);
  SamplerState StateAt(const SamplerProgress& progress) const;
  absl::StatusOr<SamplerState> PresentState() const;
  absl::StatusOr<Batch> MakeEmpty(int64_t epoch, int64_t step);
  NextResult Advance(Batch& batch, bool wait);
  absl::StatusOr<internal_loader::Entry*> Await(bool wait);
  absl::Status CheckRunning(absl::string_view call) const;
  bool forked() const {
    return *options_.num_workers > 0 && fork_guard_.forked();
  }
  // Returns FAILED_PRECONDITION if only some parts of a step were given out.
  absl::Status CheckBetweenSteps(absl::string_view call) const;
  bool running() const {
    return state_ >= State::kRunning && state_ <= State::kDraining && !forked();
  }
  absl::Status CheckFields() const;
  NextResult GiveOut(internal_loader::Entry& entry, Batch& batch);
  void Drop(internal_loader::Entry& entry);
  NextResult EndDrain();
  bool NextEndsAt(const internal_loader::Entry& end) const;
  bool EndEpoch(internal_loader::Entry& entry);
  NextResult FailForGood(absl::Status status);
  template <typename Move>
  absl::Status Restart(State then, const Move& move);

  const std::shared_ptr<Dataset> dataset_;
  const LoaderOptions options_;
  const OrderDescription order_description_;
  const ForkGuard fork_guard_;
  std::shared_ptr<internal_loader::SlotPool> pool_;
  std::shared_ptr<internal_loader::SlotPool> empty_pool_;  // of EmptyBatch
  std::unique_ptr<internal_loader::Pipeline> pipeline_;

  State state_ = State::kNew;
  absl::Status failure_;  // not OK in kFailed, and OK otherwise
  std::vector<SampleError> errors_;
  int empty_epochs_ = 0;
  bool is_in_step_ = false;   // some parts of a step were given out
  bool drops_parts_ = false;  // until the end of a step that has failed
  // The ranges to skip in the epoch in which there was a RestoreState or Skip
  // last.
  int64_t skip_epoch_ = 0;
  SkipRanges skip_;

  const std::unique_ptr<internal_loader::Meter> meter_;
  uint32_t calls_ = 0;
};

// The batches of an epoch, for a range-based for loop. An error is the last
// element. A trainer of one rank that can do without some steps goes on after
// it with another range:
//
//   while (true) {
//     EpochRange range = loader->Epoch(epoch);
//     absl::Status error;
//     for (absl::StatusOr<Batch>& batch : range) {
//       error = batch.status();
//       if (batch.ok()) Train(*batch);
//     }
//     if (range.kind() == NextKind::kEnd) break;
//     if (range.kind() != NextKind::kFailedStep) return error;
//     Log(error);
//     loader->KeepPlace();
//   }
// Requires: the loader outlives it.
// Thread-safety: thread-compatible, together with its loader.
class EpochRange {
 public:
  class Iterator {
   public:
    explicit Iterator(EpochRange* range) : range_(range) {}
    absl::StatusOr<Batch>& operator*() const { return range_->batch_; }
    Iterator& operator++() {
      range_->Advance();
      return *this;
    }
    bool operator!=(const Iterator& other) const {
      return done() != other.done();
    }

   private:
    bool done() const { return range_ == nullptr || range_->done_; }
    EpochRange* range_;
  };

  // A second loop over the range goes on with the next batch.
  Iterator begin() {
    if (std::exchange(has_begun_, true)) Advance();
    return Iterator(this);
  }
  Iterator end() { return Iterator(nullptr); }

  // Returns what the last call of Next has given, or kStopped if GoToEpoch has
  // failed.
  NextKind kind() const { return kind_; }

 private:
  friend class Loader;
  EpochRange(Loader& loader, int64_t epoch);
  void Advance();

  Loader* loader_;
  absl::StatusOr<Batch> batch_;
  NextKind kind_ = NextKind::kStopped;
  bool has_begun_ = false;
  bool done_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_LOADER_H_
