#include "lockstep/loader/loader.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/end_process.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/cpus.h"
#include "lockstep/loader/loader_state.h"
#include "lockstep/loader/meter.h"
#include "lockstep/loader/packed_rows.h"
#include "lockstep/loader/pipeline.h"
#include "lockstep/loader/recorder.h"
#include "lockstep/loader/slot.h"
#include "lockstep/loader/slot_pool.h"
#include "lockstep/sampler/state.h"

namespace lockstep {
namespace {

using internal_loader::Entry;
using internal_loader::EventLog;
using internal_loader::Meter;
using internal_loader::Now;
using internal_loader::Pipeline;
using internal_loader::Slot;
using internal_loader::SlotPool;

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

// One of so many calls of Next counts the batches that are ready.
constexpr uint32_t kCallsToLook = 16;

// The most epochs in a row without a step. More mean that no step will come.
constexpr int kMostEmptyEpochs = 1000;

// By default, more batches than usual are read ahead if they take no more bytes
// together: the more there are, the less often the consumer is woken.
constexpr int64_t kSmall = int64_t{2} << 20;

// Returns the largest number of rows that a batch can have.
int64_t MostRows(const LoaderOptions& options, const Sampler& sampler) {
  const int64_t micro = options.micro_batch_size;
  return micro == 0 ? sampler.max_rows() : std::min(micro, sampler.max_rows());
}

// Returns the number of slots that the options allow, if each takes so many
// bytes, and a rank has so many shards.
absl::StatusOr<int64_t> CountSlots(const LoaderOptions& options,
                                   int64_t batch_bytes, int64_t shards) {
  const int64_t small = kSmall / std::max<int64_t>(batch_bytes, 1);
  const int64_t slots = options.prefetch_batches.value_or(std::clamp<int64_t>(
                            small, 4 * shards, 16 * shards)) +
                        1;
  if (options.prefetch_bytes == 0) return slots;
  const int64_t fit = options.prefetch_bytes / batch_bytes;
  if (fit < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch takes ", batch_bytes, " bytes, and there must be room for ",
        "two: one in use and one read ahead; prefetch_bytes should be ",
        2 * batch_bytes,
        " or more, but got prefetch_bytes=", options.prefetch_bytes));
  }
  return std::min(slots, fit);
}

// A trainer may call TryNext often, so this error is made only once.
const absl::Status& NotReady() {
  static const absl::Status& status =
      *new absl::Status(absl::UnavailableError("no batch is ready yet"));
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(
    std::shared_ptr<Dataset> dataset, std::unique_ptr<Sampler> sampler,
    const LoaderOptions& options) {
  return CatchAll("making a loader",
                  [&] { return Make(dataset, std::move(sampler), options); });
}

absl::StatusOr<std::unique_ptr<Loader>> Loader::Make(
    const std::shared_ptr<Dataset>& dataset, std::unique_ptr<Sampler> sampler,
    const LoaderOptions& options) {
  if (dataset == nullptr || sampler == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("a loader needs a dataset and a sampler, but got no ",
                     dataset == nullptr ? "dataset" : "sampler"));
  }
  LOCKSTEP_RETURN_IF_ERROR(Validate(options, sampler->options().cut));
  const OrderDescription order = sampler->order().Describe();
  if (order.size != dataset->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the order ", order.ToString(), " is over ", order.size,
                     " samples, and the dataset has ", dataset->size(),
                     ": make the order for the dataset's size"));
  }
  LoaderOptions resolved = options;
  if (!resolved.num_workers) resolved.num_workers = DefaultWorkers();
  if (!resolved.base_seed) resolved.base_seed = resolved.seed;
  const int64_t most_rows = MostRows(resolved, *sampler);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<FieldSpec> fields,
                            BatchFields(*dataset, sampler->order()));
  internal_loader::BatchLayout layout;
  LOCKSTEP_RETURN_IF_ERROR(
      internal_loader::MakeLayout(fields, most_rows, layout));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const int64_t slots,
      CountSlots(
          resolved,
          SlotPool::BytesPerSlot(layout, most_rows, resolved.memory.get()),
          ShardsOf(sampler->options().cut, 0).end));
  std::unique_ptr<Loader> loader(new Loader(dataset, resolved, order));
  LOCKSTEP_ASSIGN_OR_RETURN(
      loader->pool_,
      SlotPool::Create(layout.specs, most_rows, slots, resolved.memory));
  LOCKSTEP_ASSIGN_OR_RETURN(
      loader->pipeline_,
      Pipeline::Create(dataset, std::move(sampler), resolved, loader->pool_));
  return loader;
}

absl::StatusOr<std::vector<FieldSpec>> Loader::BatchFields(
    const Dataset& dataset, const Order& order) {
  const absl::Span<const FieldSpec> fields = dataset.fields();
  if (const auto packing = order.packing()) {
    return internal_loader::PackedFields(fields, *packing);
  }
  return std::vector<FieldSpec>(fields.begin(), fields.end());
}

Loader::Loader(std::shared_ptr<Dataset> dataset, const LoaderOptions& options,
               const OrderDescription& order)
    : dataset_(std::move(dataset)),
      options_(options),
      order_description_(order),
      meter_(std::make_unique<Meter>(options_)) {}

Loader::~Loader() {
  // In a forked process, the parent's threads do not exist, so they can't be
  // waited for. They may have held any lock.
  if (forked()) {
    static_cast<void>(pipeline_.release());
  } else if (pipeline_ != nullptr && pipeline_->has_given_up() &&
             !pipeline_->Abandon()) {
    KeepForEver(std::shared_ptr<Pipeline>(std::move(pipeline_)));
  }
}

void Loader::GiveUpWhen(std::function<bool(absl::Duration waited)> is_enough) {
  pipeline_->GiveUpWhen(std::move(is_enough));
}

// ---- Going to a place.

absl::Status Loader::CheckFields() const {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<FieldSpec> now,
                            CatchAll("Dataset::fields", [&] {
                              return BatchFields(*dataset_, order());
                            }));
  const auto& then = pool_->layout().specs;
  if (now.size() != then.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the dataset had ", then.size(),
                     " fields when the loader "
                     "was made, and now has ",
                     now.size(), "; make a new loader for other fields"));
  }
  for (size_t i = 0; i < now.size(); ++i) {
    if (now[i] == then[i]) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the dataset's field was ", then[i].ToString(),
        " when the loader was made, and now is ", now[i].ToString(),
        "; make a new loader for other fields"));
  }
  return absl::OkStatus();
}

template <typename Move>
absl::Status Loader::Restart(State then, const Move& move) {
  errors_.clear();
  if (forked()) return CheckRunning("StartEpoch");
  LOCKSTEP_RETURN_IF_ERROR(failure_);
  LOCKSTEP_RETURN_IF_ERROR(CheckFields());
  absl::Status status;
  pipeline_->Restart([&](Sampler& sampler) {
    status = CatchAll("the order", [&] { return move(sampler); });
    if (status.ok()) pipeline_->set_progress(sampler.progress());
    return status.ok();
  });
  if (status.ok()) {
    state_ = then;
  } else if (state_ != State::kNew) {
    state_ = State::kStopped;
  }
  empty_epochs_ = 0;
  is_in_step_ = drops_parts_ = false;
  meter_->GoTo(progress().steps_taken);
  return status;
}

absl::Status Loader::StartEpoch(int64_t epoch) {
  return RunOrEnd("StartEpoch", [&]() -> absl::Status {
    if (epoch < 0 || epoch > kMostCounted) {
      return absl::InvalidArgumentError(
          absl::StrCat("epoch should be 0 to 2^62, but got epoch=", epoch));
    }
    if (state_ == State::kEnded && options_.prefetch_next_epoch &&
        epoch > progress().epoch && epoch - 1 == progress().epoch &&
        !forked()) {
      LOCKSTEP_RETURN_IF_ERROR(CheckFields());
      skip_ = SkipRanges();
      pipeline_->set_progress({epoch, 0, 0, progress().steps_in_total});
      state_ = State::kRunning;
      meter_->GoTo(0);
      return absl::OkStatus();
    }
    SamplerState start = StateAt({epoch, 0, 0, progress().steps_in_total});
    start.skip = SkipRanges();
    return Restart(State::kRunning, [&](Sampler& sampler) -> absl::Status {
      LOCKSTEP_RETURN_IF_ERROR(sampler.RestoreState(start));
      skip_ = SkipRanges();
      return absl::OkStatus();
    });
  });
}

absl::Status Loader::GoToEpoch(int64_t epoch) {
  return RunOrEnd("GoToEpoch", [&]() -> absl::Status {
    switch (state_) {
      case State::kNew:
      case State::kEnded:
      case State::kFailed:
        return StartEpoch(epoch);
      case State::kRunning: {
        const SamplerProgress& here = progress();
        const bool is_there = here.epoch == epoch && here.position == 0 &&
                              here.steps_taken == 0 && !is_in_step_ &&
                              pipeline_->in_order();
        return is_there ? absl::OkStatus() : StartEpoch(epoch);
      }
      case State::kKept:
      case State::kDraining:
        return GoOn(epoch);
      case State::kInterrupted:
        return absl::FailedPreconditionError(absl::StrCat(
            "the last loop over epoch ", pipeline_->epoch(),
            " has ended at an error: call KeepPlace() to go on behind it, or "
            "StartEpoch(",
            epoch, ") to give up what is left of the epoch"));
      case State::kFinished:  // Only RestoreState leads to more steps.
        return absl::OkStatus();
      case State::kStopped:
        break;
    }
    return CheckRunning("GoToEpoch");
  });
}

// Goes on at the place that is kept.
absl::Status Loader::GoOn(int64_t epoch) {
  const int64_t present = pipeline_->epoch();
  if (epoch == present || (options_.advance_epochs && epoch < present)) {
    if (state_ == State::kKept) state_ = State::kRunning;
    return absl::OkStatus();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t left, StepsLeft());
  if (left == 0) return StartEpoch(epoch);
  return absl::FailedPreconditionError(absl::StrCat(
      "the loader is in epoch ", present, ", of which ", left,
      " steps are left, and not in epoch ", epoch, ": call Epoch(", present,
      ") to go on, or StartEpoch(", epoch, ") to give them up"));
}

void Loader::KeepPlace() {
  if (state_ == State::kRunning || state_ == State::kInterrupted) {
    state_ = State::kKept;
  }
}

absl::Status Loader::RestoreState(absl::string_view bytes,
                                  const RestoreOptions& options) {
  return RunOrEnd("RestoreState", [&]() -> absl::Status {
    internal_loader::LoaderState state;
    if (bytes.substr(0, 4) == "LSSP") {
      // The state of a sampler has no seed.
      state = {options_.seed, std::string(bytes)};
    } else {
      LOCKSTEP_ASSIGN_OR_RETURN(state,
                                internal_loader::DecodeLoaderState(bytes));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(SamplerState position,
                              DecodeState(state.sampler));
    LOCKSTEP_RETURN_IF_ERROR(
        CheckSameOrder(position, order_description_, options.allow_different));
    LOCKSTEP_RETURN_IF_ERROR(CheckSameShards(
        position, sampler_options().cut.shards, options.allow_different));
    if (state.seed != options_.seed) {
      return absl::FailedPreconditionError(
          absl::StrCat("the state was saved by a loader with seed=", state.seed,
                       ", and this one has seed=", options_.seed,
                       ": what samples draw at random would be different"));
    }
    return Restart(State::kKept, [&](Sampler& sampler) -> absl::Status {
      LOCKSTEP_RETURN_IF_ERROR(sampler.RestoreState(position, options));
      skip_epoch_ = position.progress.epoch;
      skip_ = position.skip;
      return absl::OkStatus();
    });
  });
}

absl::Status Loader::Skip(int64_t begin, int64_t end) {
  return RunOrEnd("Skip", [&]() -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(CheckRunning("Skip"));
    LOCKSTEP_RETURN_IF_ERROR(CheckBetweenSteps("Skip"));
    const State before = state_;
    LOCKSTEP_ASSIGN_OR_RETURN(const SamplerState here, PresentState());
    absl::Status skipped;
    const State then = before == State::kDraining ? State::kKept : before;
    LOCKSTEP_RETURN_IF_ERROR(
        Restart(then, [&](Sampler& sampler) -> absl::Status {
          LOCKSTEP_RETURN_IF_ERROR(sampler.RestoreState(here));
          // The loader goes on if the positions can't be skipped.
          skipped = sampler.Skip(begin, end);
          skip_epoch_ = sampler.progress().epoch;
          skip_ = sampler.skipped();
          return absl::OkStatus();
        }));
    if (before == State::kDraining) Drain();
    return skipped;
  });
}

absl::StatusOr<std::string> Loader::SaveState() const {
  return RunOrEnd("SaveState", [&]() -> absl::StatusOr<std::string> {
    LOCKSTEP_ASSIGN_OR_RETURN(const SamplerState state, PresentState());
    return internal_loader::EncodeLoaderState(
        {options_.seed, EncodeState(state)});
  });
}

absl::StatusOr<SamplerState> Loader::PresentState() const {
  if (state_ == State::kNew) {
    return absl::FailedPreconditionError(
        "there is no state before the first StartEpoch or RestoreState");
  }
  if (!pipeline_->in_order()) {
    return absl::FailedPreconditionError(
        "batches were given out of order, and one before them was not yet: "
        "call Drain, and Next until it returns false, and save then");
  }
  return StateAt(progress());
}

SamplerState Loader::StateAt(const SamplerProgress& progress) const {
  SamplerState state;
  state.progress = progress;
  if (progress.epoch == skip_epoch_) state.skip = skip_;
  state.order_digests = OrderDigests(order_description_);
  state.shards = sampler_options().cut.shards;
  return state;
}

const SamplerProgress& Loader::progress() const {
  return pipeline_->progress();
}

absl::StatusOr<int64_t> Loader::StepsLeft() const {
  if (over()) return 0;
  SamplerProgress from = progress();
  // If batches are given out of order, an epoch may have begun without its
  // first step.
  const int64_t epoch = pipeline_->epoch();
  if (epoch != from.epoch) from = {epoch, 0, 0, from.steps_in_total};
  LOCKSTEP_ASSIGN_OR_RETURN(int64_t left, CatchAll("the order", [&] {
                              return pipeline_->StepsLeftFrom(StateAt(from));
                            }));
  if (options_.max_steps > 0) {
    const int64_t most = options_.max_steps - from.steps_in_total;
    left = std::min(left, std::max<int64_t>(0, most));
  }
  return left - pipeline_->given_ahead();
}

void Loader::Drain() {
  if (!running() || state_ == State::kDraining) return;
  state_ = State::kDraining;
  pipeline_->Drain();
}

// ---- Giving out batches.

absl::Status Loader::CheckRunning(absl::string_view call) const {
  if (forked()) {
    return absl::FailedPreconditionError(
        "this process was forked from the one that made the loader, and the "
        "workers are not in it: make loaders after the fork");
  }
  switch (state_) {
    case State::kRunning:
    case State::kKept:
    case State::kInterrupted:
    case State::kDraining:
      return absl::OkStatus();
    case State::kFailed:
      return failure_;
    case State::kNew:
      return absl::FailedPreconditionError(absl::StrCat(
          call, " before the first StartEpoch(epoch) or RestoreState(bytes) ",
          "that went well"));
    case State::kStopped:
      return absl::FailedPreconditionError(
          "the loader has stopped at an error of its order, which was "
          "returned: call StartEpoch(epoch) or RestoreState(bytes)");
    case State::kFinished:
      return absl::OutOfRangeError(absl::StrCat(
          "the loader is past its end: max_steps=", options_.max_steps,
          " steps were taken"));
    case State::kEnded:
      break;
  }
  return absl::OutOfRangeError(absl::StrCat(
      "epoch ", progress().epoch,
      " is over, as Next has said: call StartEpoch(",
      static_cast<int64_t>(static_cast<uint64_t>(progress().epoch) + 1),
      ") to go on, or set advance_epochs"));
}

absl::Status Loader::CheckBetweenSteps(absl::string_view call) const {
  if (!is_in_step_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      call, " between the parts of step ", progress().steps_taken, " of epoch ",
      progress().epoch, ": call it when Next has given out the ", "last part"));
}

NextResult Loader::Next(Batch& batch) {
  batch.ReleaseSlot();
  NextResult next = RunOrEnd("Next", [&] { return Advance(batch, true); });
  if (batch.empty()) batch.Release();
  return next;
}

NextResult Loader::TryNext(Batch& batch) {
  batch.Release();
  return RunOrEnd("TryNext", [&] { return Advance(batch, false); });
}

absl::StatusOr<Batch> Loader::EmptyBatch(int64_t epoch, int64_t step) {
  return CatchAll("EmptyBatch", [&] { return MakeEmpty(epoch, step); });
}

absl::StatusOr<Batch> Loader::MakeEmpty(int64_t epoch, int64_t step) {
  // The caller may still have the batch of an earlier call.
  if (empty_pool_ == nullptr || empty_pool_->free_slots() == 0) {
    absl::StatusOr<std::shared_ptr<SlotPool>> pool = SlotPool::Create(
        pool_->layout().specs, /*rows=*/1, /*slots=*/1, options_.memory);
    if (!pool.ok()) {
      return Annotate(pool.status(),
                      absl::StrCat("memory for a batch without rows, for step ",
                                   step, " of epoch ", epoch));
    }
    empty_pool_ = *std::move(pool);
  }
  Slot& slot = *empty_pool_->Take();
  pipeline_->FillEmpty(slot, epoch, step);
  if (!slot.status.ok()) {
    absl::Status failed = slot.status;
    empty_pool_->PutBack(slot);
    return failed;
  }
  Batch batch;
  batch.Fill(&slot, empty_pool_);
  return batch;
}

NextResult Loader::Advance(Batch& batch, bool wait) {
  errors_.clear();
  if (!running()) return NextResult(NextKind::kStopped, CheckRunning("Next"));
  if (pipeline_->events().on() && !is_in_step_) {
    pipeline_->events().GoTo(progress().epoch, progress().steps_taken);
  }
  while (true) {
    if (state_ == State::kDraining && !is_in_step_ && !drops_parts_ &&
        pipeline_->empty()) {
      return EndDrain();
    }
    const absl::StatusOr<Entry*> awaited = Await(wait);
    if (!awaited.ok()) {
      if (pipeline_->failed()) return FailForGood(pipeline_->failure());
      return NextResult(NextKind::kTryAgain, awaited.status());
    }
    Entry* const entry = *awaited;
    if (entry == nullptr) {
      return NextResult(NextKind::kTryAgain,
                        wait ? absl::DeadlineExceededError(absl::StrCat(
                                   "there was no batch within timeout=",
                                   absl::FormatDuration(options_.timeout), ": ",
                                   pipeline_->Activity()))
                             : NotReady());
    }
    if (entry->kind == Entry::Kind::kBatch) {
      if (!drops_parts_) return GiveOut(*entry, batch);
      const Slot& slot = *entry->slot;
      meter_->AddFailures(static_cast<int64_t>(slot.errors.size()),
                          static_cast<int64_t>(slot.substitutions.size()));
      Drop(*entry);
      continue;
    }
    if (entry->kind == Entry::Kind::kFailed) {
      absl::Status status = entry->status;
      pipeline_->Pop(*entry);
      state_ = State::kStopped;
      return NextResult(NextKind::kStopped, std::move(status));
    }
    // The end of the draining is reported before the end of the epoch, so that
    // the result does not depend on how far the workers have planned.
    if (state_ == State::kDraining && NextEndsAt(*entry)) return EndDrain();
    if (EndEpoch(*entry)) return NextResult(NextKind::kEnd);
    if (++empty_epochs_ > kMostEmptyEpochs) {
      state_ = State::kStopped;
      return NextResult(NextKind::kStopped,
                        absl::FailedPreconditionError(absl::StrCat(
                            kMostEmptyEpochs, " epochs in a row, up to epoch ",
                            progress().epoch, ", had no step")));
    }
  }
}

// Waits for an entry, and counts the wait.
absl::StatusOr<Entry*> Loader::Await(bool wait) {
  if (calls_++ % kCallsToLook == 0 && pipeline_->workers() > 0) {
    meter_->AddReady(pipeline_->CountReady());
  }
  absl::StatusOr<Entry*> entry = pipeline_->Await(0);
  if (!entry.ok() || *entry != nullptr || !wait) return entry;
  const int64_t begin = Now();
  const int64_t patience = absl::ToInt64Nanoseconds(options_.timeout);
  const int64_t deadline =
      patience > kForever - begin ? kForever : begin + patience;
  entry = pipeline_->Await(deadline);
  const int64_t end = Now();
  meter_->AddWait(end - begin);
  if (pipeline_->events().on()) {
    pipeline_->events().Add({LoaderEvent::Kind::kWait, /*worker=*/-1, begin,
                             end, progress().epoch, progress().steps_taken});
  }
  return entry;
}

NextResult Loader::FailForGood(absl::Status status) {
  state_ = State::kFailed;
  failure_ = std::move(status);
  return NextResult(NextKind::kStopped, failure_);
}

NextResult Loader::GiveOut(Entry& entry, Batch& batch) {
  Slot& slot = *entry.slot;
  empty_epochs_ = 0;
  if (!slot.errors.empty() || !slot.substitutions.empty()) {
    const int64_t failures =
        meter_->AddFailures(static_cast<int64_t>(slot.errors.size()),
                            static_cast<int64_t>(slot.substitutions.size()));
    if (options_.max_failures && failures > *options_.max_failures) {
      const absl::Status last = slot.errors.empty()
                                    ? slot.substitutions.back().why
                                    : slot.errors.back().status;
      return FailForGood(absl::ResourceExhaustedError(absl::StrCat(
          failures, " samples could not be read, more than max_failures=",
          *options_.max_failures, " allows; the last one, in ", slot.Place(),
          ": ", last.ToString())));
    }
  }
  if (!slot.status.ok()) {
    NextResult failed(NextKind::kFailedStep, slot.status);
    errors_.swap(slot.errors);
    is_in_step_ = false;
    drops_parts_ = true;
    Drop(entry);
    return failed;
  }
  is_in_step_ = !slot.is_last_part();
  batch.Fill(&slot, pool_);
  meter_->AddBatch(slot.SamplesRead(), batch.TotalBytes());
  if (slot.is_packed()) {
    const int64_t row_length = slot.layout->fields.back().elements;
    const int64_t elements = slot.valid * row_length;
    meter_->AddPacked(elements, elements - slot.filled.load());
  }
  // After Pop a worker may plan another step in this entry.
  const int64_t steps_in_epoch = entry.steps_in_epoch;
  pipeline_->Pop(entry);
  if (options_.progress) meter_->Report(progress(), steps_in_epoch);
  return NextResult(NextKind::kBatch);
}

// Drops a part of a step that has failed. The step counts as given out.
void Loader::Drop(Entry& entry) {
  Slot& slot = *entry.slot;
  drops_parts_ = !slot.is_last_part();
  entry.progress = entry.after_step;
  pipeline_->Pop(entry);
  pool_->GiveBack(slot);
}

NextResult Loader::EndDrain() {
  state_ = State::kKept;
  pipeline_->GoOn();
  return NextResult(NextKind::kEnd);
}

// Returns true if Next returns false at this end.
bool Loader::NextEndsAt(const Entry& end) const {
  return end.kind == Entry::Kind::kEndOfSteps || !options_.advance_epochs ||
         end.progress.epoch == kMostCounted;
}

// Passes an end. Returns true if Next returns false there.
bool Loader::EndEpoch(Entry& entry) {
  const bool finished = entry.kind == Entry::Kind::kEndOfSteps;
  const bool ends = NextEndsAt(entry);
  pipeline_->Pop(entry);
  if (ends) {
    state_ = finished ? State::kFinished : State::kEnded;
  } else {
    meter_->GoTo(0);
  }
  return ends;
}

int Loader::available_workers() const {
  // In a forked process, a lock may be held for ever by a thread of the parent.
  return forked() ? 0 : pipeline_->available_workers();
}

const Order& Loader::order() const { return pipeline_->order(); }

const SamplerOptions& Loader::sampler_options() const {
  return pipeline_->sampler_options();
}

LoaderMetrics Loader::Metrics() const {
  LoaderMetrics metrics = meter_->Metrics(pipeline_->busy_nanoseconds());
  metrics.effective_workers = pipeline_->effective_workers();
  // In a forked process, a lock may be held for ever by a thread of the parent.
  if (!forked()) metrics.slowest = pipeline_->slowest().Sorted();
  return metrics;
}

int64_t Loader::ReadyBatches() const { return pipeline_->CountReady(); }

// A thread that is gone in a forked process may have held the log's mutex.
void Loader::KeepEvents(int64_t least) {
  if (!forked()) pipeline_->events().Keep(least);
}
LoaderEvents Loader::EventsOf(int64_t epoch, int64_t step) const {
  return forked() ? LoaderEvents() : pipeline_->events().Of(epoch, step);
}
std::string Loader::Trace() const {
  return forked() ? EventLog(0).ToJson() : pipeline_->events().ToJson();
}

}  // namespace lockstep
