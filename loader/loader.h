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
//       if (TimeToSave()) Save(loader->SaveState());
//     }
//   }
//
// A new loader begins with epoch 0. A restored one goes on after the last batch
// that was given out before SaveState, in the middle of an epoch or at its end.
// The same, step by step; StartEpoch is left out if a state was restored:
//
//   LOCKSTEP_RETURN_IF_ERROR(loader->StartEpoch(epoch));
//   Batch batch;
//   while (true) {
//     LOCKSTEP_ASSIGN_OR_RETURN(const bool more, loader->Next(batch));
//     if (!more) break;
//     Train(batch);
//   }
//
// A trainer that can do without some steps asks what kind of result it is:
//
//   const NextResult next = loader->Next(batch);
//   if (next.kind() == NextKind::kFailedStep) {
//     Log(next.status());
//     continue;
//   }
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

// What a call of Next gives.
enum class NextKind {
  kBatch,  // The next step.
  // Nothing is left of the epoch, of max_steps, or of what a Drain leaves.
  kEnd,
  // One step is lost, and the next call gives the step after it. The status is
  // the error of a sample, of collate or of BatchMemory.
  kFailedStep,
  // No step is lost: the call can be repeated when its reason is gone.
  //   DEADLINE_EXCEEDED    options.timeout has passed
  //   RESOURCE_EXHAUSTED   the caller holds every batch
  //   CANCELLED            the function of GiveUpWhen has returned true
  //   UNAVAILABLE          in TryNext alone: the batch is not ready yet
  kTryAgain,
  // The loader gives nothing until StartEpoch or RestoreState is called or, if
  // ok() is false, for ever. FAILED_PRECONDITION if there was neither call yet,
  // or if this process is a fork; OUT_OF_RANGE if an earlier call has said that
  // the epoch is over; otherwise the error of the order or of the loader.
  kStopped,
};

// The result of Next: true with a batch, false at the end, or an error.
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
// Guarantees: every step ends as a batch or as an error of Next, unless the
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

  // Waits for the samples that are being read, and for nothing else. If the
  // last wait of Next was given up, the destructor does not wait for them
  // either: their workers keep the dataset, whose Read they are in, until the
  // process ends, and call nothing else of the caller's. Batches that the
  // caller holds stay valid.
  ~Loader();

  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Goes to the start of an epoch (0 or more) from any place, and begins to
  // read it, so that the first batch is made while the trainer is still
  // starting. After the end of epoch e, StartEpoch(e + 1) keeps the batches
  // that were read ahead.
  absl::Status StartEpoch(int64_t epoch);

  // Releases what `batch` holds, fills it with the next step and returns true;
  // or returns false at the end of the epoch; or returns an error, whose kind
  // says whether a step is lost. (The order of an epoch that is read ahead also
  // fails here, and not in StartEpoch. The end of an epoch, like a batch, comes
  // only while the caller does not hold every batch.)
  NextResult Next(Batch& batch);

  // Does the same without waiting. (Without workers, it reads the batch now.)
  NextResult TryNext(Batch& batch);

  // Has Next call this function while it waits for a batch, some twenty times a
  // second and on the thread that called Next, with the time that it has waited
  // so far. When the function returns true, or throws, Next returns CANCELLED,
  // and a trainer normally leaves its loop. A trainer that is asked to stop
  // needs this, since data may come late or never:
  //
  //   std::atomic<bool> stop = false;  // set by a signal handler
  //   loader->GiveUpWhen([&stop](absl::Duration waited) {
  //     return stop && waited >= absl::Seconds(20);
  //   });
  //
  // Objects that the function uses must live until it is replaced, or until the
  // loader is destroyed; nullptr removes it. It is not called without workers,
  // since Next then reads and does not wait, nor by TryNext. A loader of
  // Session::MakeLoader has such a function, which does as the job's
  // stop.patience says.
  void GiveUpWhen(std::function<bool(absl::Duration waited)> is_enough);

  // Calls StartEpoch and returns all batches of the epoch as a range. An error
  // is the last element.
  // Exception: if the place in the present epoch is kept, the next call of
  // Epoch for it goes on there, and the range is what is left of the epoch,
  // perhaps nothing. RestoreState, Drain, KeepPlace and an error in a range
  // keep the place. (The range of another epoch gives up what is left of the
  // present one.)
  EpochRange Epoch(int64_t epoch);

  // Keeps the place in the present epoch for the next call of Epoch. So a loop
  // that is left by `break` can be continued by another one; without this call,
  // Epoch starts the epoch anew. At the end of an epoch, it does nothing.
  void KeepPlace();

  // Returns the samples that failed the step for which Next has just returned
  // an error.
  absl::Span<const SampleError> errors() const { return errors_; }

  // Returns OK, or the reason why Next fails from now on, whatever is called:
  // for instance, worker_init failed, or more than max_failures samples failed.
  const absl::Status& status() const { return failure_; }
  bool ok() const { return state_ != State::kFailed; }

  // Returns the place of the job: after the last batch that Next gave out, or,
  // with Delivery::kAsReady, after the last batch before which none is missing.
  // A new loader is at the start of epoch 0.
  const Progress& progress() const;

  // Returns true if Next has returned false at the end of the present epoch.
  // The state of a loader does not contain this: after RestoreState at the end
  // of an epoch, Next returns false once more.
  bool over() const {
    return state_ == State::kEnded || state_ == State::kFinished;
  }

  // Returns how many steps Next has still to give out in the present epoch,
  // whatever was read ahead; max_steps may leave fewer than the epoch has.
  // Before the first StartEpoch or RestoreState, the present epoch is 0. Each
  // call opens the order's epoch, and reads through an order that groups, so
  // call it once an epoch and not at each step.
  absl::StatusOr<int64_t> StepsLeft() const;

  // Returns 168 bytes, and 16 more for each range to skip. Any loader over the
  // same order and with the same seed can go on from them, on any number of
  // ranks and workers. FAILED_PRECONDITION before the first StartEpoch or
  // RestoreState, and if batches were given out of order and one before them
  // was not: call Drain first.
  absl::StatusOr<std::string> SaveState() const;

  // Goes to the place where a state was saved, and begins to read. Next and
  // Epoch(progress().epoch) go on from there, while StartEpoch gives the place
  // up. The state of a Sampler is accepted as well, for instance that of an
  // IterationSampler at its start (with advance_epochs and max_steps, a loader
  // counts iterations). If the bytes are wrong or of another order, the error
  // changes nothing.
  absl::Status RestoreState(absl::string_view bytes,
                            const RestoreOptions& options = {});

  // Leaves out positions [begin, end) of the present epoch's stream, none of
  // which may have been given out. Every rank must do the same. Batches that
  // were read ahead are read anew.
  absl::Status Skip(int64_t begin, int64_t end);

  // Begins no more steps. Next gives out the steps that were begun and then
  // returns false, whatever is left of the epoch; a state can then be saved
  // with any delivery. The next call of Next goes on with the epoch, and so
  // does Epoch of the same epoch. (If the epoch was at its end, Next returns
  // false once more, and Epoch is empty.) So a loop over epochs that drains
  // must check whether the epoch is done:
  //
  //   do {
  //     for (auto& batch : loader->Epoch(epoch)) {
  //       ...
  //       if (TimeToSave()) loader->Drain();
  //     }
  //     Save(loader->SaveState());
  //   } while (*loader->StepsLeft() > 0);
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

  // Returns what was done at which time, in the format of chrome://tracing, up
  // to options.trace_events events.
  std::string Trace() const;

  const Dataset& dataset() const { return *dataset_; }
  // Returns the options, with num_workers and base_seed filled in if they were
  // unset.
  const LoaderOptions& options() const { return options_; }

 private:
  friend class EpochRange;

  // The state that decides what Next and Epoch do. From each state but kFailed,
  // StartEpoch leads to kRunning, and RestoreState to kKept; if the order fails
  // then, kNew stays as it is, and any other state becomes kStopped. A Skip
  // that goes well changes no state. In kKept, kDraining and kStopped, Epoch
  // does not start the present epoch anew.
  enum class State {
    kNew,       // StartEpoch and RestoreState have not gone well yet.
    kRunning,   // Next gives out batches.
    kKept,      // The same. Epoch makes it kRunning, and goes on.
    kDraining,  // Drain was called while running. It is kKept once Next has
                // returned false.
    kEnded,     // Next has returned false at the end of the epoch.
    kFinished,  // Next has returned false after max_steps.
    kStopped,   // The order has failed, or has had no step for many epochs.
    kFailed,    // status() says why. There is no way out.
  };

  static absl::StatusOr<std::unique_ptr<Loader>> Make(
      const std::shared_ptr<Dataset>& dataset, std::unique_ptr<Sampler> sampler,
      const LoaderOptions& options);
  Loader(std::shared_ptr<Dataset> dataset, const LoaderOptions& options,
         const OrderDescription& order);

  absl::Status GoToEpoch(int64_t epoch);
  SamplerState StateAt(const Progress& progress) const;
  absl::StatusOr<SamplerState> PresentState() const;
  NextResult Advance(Batch& batch, bool wait);
  absl::StatusOr<internal_loader::Entry*> Await(bool wait);
  absl::Status CheckRunning(absl::string_view call) const;
  bool forked() const {
    return *options_.num_workers > 0 && fork_guard_.forked();
  }
  bool running() const {
    return (state_ == State::kRunning || state_ == State::kKept ||
            state_ == State::kDraining) &&
           !forked();
  }
  absl::Status CheckFields() const;
  NextResult GiveOut(internal_loader::Entry& entry, Batch& batch);
  NextResult EndDrain();
  bool IsTold(const internal_loader::Entry& end) const;
  bool EndEpoch(internal_loader::Entry& entry);
  NextResult FailForGood(absl::Status status);
  template <typename Move>
  absl::Status Restart(State then, const Move& move);

  const std::shared_ptr<Dataset> dataset_;
  const LoaderOptions options_;
  const OrderDescription order_;
  const ForkGuard fork_guard_;
  std::shared_ptr<internal_loader::SlotPool> pool_;
  std::unique_ptr<internal_loader::Pipeline> pipeline_;

  State state_ = State::kNew;
  absl::Status failure_;  // not OK in kFailed, and OK otherwise
  std::vector<SampleError> errors_;
  int empty_epochs_ = 0;
  // The ranges to skip in the epoch in which there was a RestoreState or Skip
  // last.
  int64_t skip_epoch_ = 0;
  SkipRanges skip_;

  const std::unique_ptr<internal_loader::Meter> meter_;
  uint32_t calls_ = 0;
};

// The batches of an epoch, for one range-based for loop. An error is the last
// element.
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

  Iterator begin() { return Iterator(this); }
  Iterator end() { return Iterator(nullptr); }

  // Returns what the last call of Next has given. After kFailedStep and
  // kTryAgain, another call of Epoch goes on.
  NextKind kind() const { return kind_; }

 private:
  friend class Loader;
  EpochRange(Loader& loader, int64_t epoch);
  void Advance();

  Loader* loader_;
  absl::StatusOr<Batch> batch_;
  NextKind kind_ = NextKind::kStopped;
  bool done_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_LOADER_H_
