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
// A new loader begins with epoch 0, and a restored one goes on behind the last
// batch before SaveState, in the middle of an epoch or at its end. Or, step by
// step, with StartEpoch unless a state was restored:
//
//   LOCKSTEP_RETURN_IF_ERROR(loader->StartEpoch(epoch));
//   Batch batch;
//   while (true) {
//     LOCKSTEP_ASSIGN_OR_RETURN(const bool more, loader->Next(batch));
//     if (!more) break;
//     Train(batch);
//   }
//
// The batches are the same bytes for any number of workers, either kind of
// them, any prefetching, and after any restart.
#ifndef LOCKSTEP_LOADER_LOADER_H_
#define LOCKSTEP_LOADER_LOADER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

// What TryNext found.
enum class Polled { kBatch, kEndOfEpoch, kNotReady };

// Thread-safety: thread-compatible. Batches may be released on any thread, and
// Metrics may be called on any. A loader may also be used inside Read, collate
// or worker_init of another one: where both have TBB's workers, the one that
// waits for the inner loader reads its samples itself.
class Loader {
 public:
  // INVALID_ARGUMENT names the option or field that is wrong. Where the sampler
  // is in its epochs does not matter.
  static absl::StatusOr<std::unique_ptr<Loader>> Create(
      std::shared_ptr<Dataset> dataset, std::unique_ptr<Sampler> sampler,
      const LoaderOptions& options = {});

  // Waits for the samples that are being read, and for nothing else. Batches
  // that the user holds stay valid.
  ~Loader();

  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Goes to the start of an epoch, from 0 on, wherever the loader is, and
  // begins to read it: the first batch can be made while the trainer is still
  // starting. After the end of epoch e, StartEpoch(e + 1) goes on with what was
  // read ahead.
  absl::Status StartEpoch(int64_t epoch);

  // Releases what `batch` holds, fills it with the next step and returns true;
  // or returns false at the end of the epoch. These errors say that no step is
  // lost, and that the call can be made again when their reason is gone:
  //   DEADLINE_EXCEEDED    options.timeout has passed
  //   RESOURCE_EXHAUSTED   the caller holds every batch, or memory ran out
  //   FAILED_PRECONDITION  there was no StartEpoch or RestoreState, or this
  //                        process is a fork
  //   OUT_OF_RANGE         the epoch is over, which was said before
  // Any other error is that of this step alone, which is lost: what a sample,
  // collate, the order or BatchMemory returned, with the same code, but UNKNOWN
  // in place of the four. errors() has the codes of samples. Where ok() is
  // false afterwards, an error of any code is for good. The order of an epoch
  // that is read ahead fails here, too, and not in StartEpoch. (False comes
  // only when the caller does not hold every batch, as a batch does.)
  absl::StatusOr<bool> Next(Batch& batch);

  // The same without waiting. (Without workers, the batch is read now.)
  absl::StatusOr<Polled> TryNext(Batch& batch);

  // StartEpoch and all its batches, as a range. But the first time after
  // RestoreState, or after a Drain that Next has ended, the epoch in which the
  // loader is goes on: the range is what is left of it, perhaps nothing. (The
  // range of another epoch gives up what is left of that one.) An error is an
  // element, after which the range goes on. One that is for good is its last,
  // and so is a second RESOURCE_EXHAUSTED in a row: whoever holds every batch
  // releases some before going on.
  EpochRange Epoch(int64_t epoch);

  // The samples that failed the step for which Next has just returned an error.
  absl::Span<const SampleError> errors() const { return errors_; }

  // OK, or why Next will fail from now on, whatever is called: worker_init
  // failed, or there were more failures than max_failures.
  const absl::Status& status() const { return failure_; }
  bool ok() const { return state_ != State::kFailed; }

  // Where the job is: after the last batch that Next gave out (as ready: after
  // the last before which none is missing); of a new loader, at the start of
  // epoch 0.
  const Progress& progress() const;

  // How many steps Next has still to give out in the present epoch, whatever
  // was read ahead; max_steps may leave fewer than the epoch has. Before the
  // first StartEpoch or RestoreState, those of epoch 0. The order's epoch is
  // opened for it, and looked through where it groups: ask once an epoch, not
  // at each step.
  absl::StatusOr<int64_t> StepsLeft() const;

  // 168 bytes, and 16 more for each range to skip, that any loader over the
  // same order and with the same seed goes on from, on any number of ranks and
  // workers. FAILED_PRECONDITION before the first StartEpoch or RestoreState,
  // and where batches were given out of order and there is a gap: call Drain
  // first.
  absl::StatusOr<std::string> SaveState() const;

  // Goes on where a state was saved, and begins to read: Next does, and so does
  // Epoch(progress().epoch), while StartEpoch would give it up. The state of a
  // Sampler will do, too: that of an IterationSampler's start, for instance
  // (with advance_epochs and max_steps, a loader counts iterations). On an
  // error of the bytes, or of an order that is another one, nothing has
  // changed.
  absl::Status RestoreState(absl::string_view bytes,
                            const RestoreOptions& options = {});

  // Leaves out positions [begin, end) of the present epoch's stream, none of
  // which may have been given out. Every rank must do the same. What was read
  // ahead is read anew.
  absl::Status Skip(int64_t begin, int64_t end);

  // No more steps are begun: Next gives out those that are, and then returns
  // false, whatever is left of the epoch; a state can then be saved in any
  // case. The call of Next after that goes on with the epoch, and so does Epoch
  // of the same one. (Where that was the epoch's end, Next returns false once
  // more, whatever the workers had come to, and Epoch is empty.) So a loop over
  // epochs that drains asks whether the epoch is done:
  //
  //   do {
  //     for (auto& batch : loader->Epoch(epoch)) {
  //       ...
  //       if (TimeToSave()) loader->Drain();
  //     }
  //     Save(loader->SaveState());
  //   } while (*loader->StepsLeft() > 0);
  void Drain();

  LoaderMetrics Metrics() const;

  // Returns how many batches are ready at this moment. It is for the thread
  // that calls Next.
  int64_t ReadyBatches() const;

  // What was done when, in the format of chrome://tracing, up to
  // options.trace_events events.
  std::string Trace() const;

  const Dataset& dataset() const { return *dataset_; }
  // The options, with num_workers and base_seed filled in where they were
  // unset.
  const LoaderOptions& options() const { return options_; }

 private:
  friend class EpochRange;

  // What Next does. StartEpoch and RestoreState lead from each state but
  // kFailed to kRunning; if the order fails then, kNew stays as it is, and any
  // other state becomes kStopped. A Skip that goes well changes no state.
  enum class State {
    kNew,       // StartEpoch and RestoreState have not gone well yet.
    kRunning,   // Next gives out batches.
    kDraining,  // Drain was called while running. It is kRunning again once
                // Next has returned false.
    kEnded,     // Next has returned false at the end of the epoch.
    kFinished,  // Next has returned false after max_steps.
    kStopped,   // The order has failed.
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
  absl::StatusOr<Polled> Advance(Batch& batch, bool wait);
  absl::StatusOr<internal_loader::Entry*> Await(bool wait);
  absl::Status CheckRunning(absl::string_view call) const;
  bool forked() const {
    return *options_.num_workers > 0 && fork_guard_.forked();
  }
  bool running() const {
    return (state_ == State::kRunning || state_ == State::kDraining) &&
           !forked();
  }
  bool over() const {
    return state_ == State::kEnded || state_ == State::kFinished;
  }
  absl::Status CheckFields() const;
  absl::StatusOr<Polled> GiveOut(internal_loader::Entry& entry, Batch& batch);
  Polled EndDrain();
  bool IsTold(const internal_loader::Entry& end) const;
  bool EndEpoch(internal_loader::Entry& entry);
  absl::Status AwaitFailed(absl::Status status);
  absl::Status FailForGood(absl::Status status);
  template <typename Move>
  absl::Status Restart(const Move& move);

  const std::shared_ptr<Dataset> dataset_;
  const LoaderOptions options_;
  const OrderDescription order_;
  const ForkGuard fork_guard_;
  std::shared_ptr<internal_loader::SlotPool> pool_;
  std::unique_ptr<internal_loader::Pipeline> pipeline_;

  State state_ = State::kNew;
  absl::Status failure_;  // not OK in kFailed, and OK otherwise
  // True if a call of Epoch goes on with the present epoch instead of starting
  // it anew. This is no state of its own, since kRunning, kDraining and
  // kStopped each occur with either value.
  bool epoch_goes_on_ = false;
  std::vector<SampleError> errors_;
  int empty_epochs_ = 0;
  // What is skipped in the epoch that was last restored or skipped in.
  int64_t skip_epoch_ = 0;
  SkipRanges skip_;

  const std::unique_ptr<internal_loader::Meter> meter_;
  uint32_t calls_ = 0;
};

// What Epoch returns; for a range-based for loop, once.
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

 private:
  friend class Loader;
  EpochRange(Loader& loader, int64_t epoch);
  void Advance();

  Loader* loader_;
  absl::StatusOr<Batch> batch_;
  bool last_ = false;
  bool done_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_LOADER_H_
