#include "lockstep/loader/loader.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/cpus.h"
#include "lockstep/loader/loader_state.h"
#include "lockstep/loader/pipeline.h"
#include "lockstep/loader/recorder.h"
#include "lockstep/loader/slot.h"
#include "lockstep/sampler/state.h"

namespace lockstep {
namespace {

using internal_loader::Entry;
using internal_loader::Now;
using internal_loader::Pipeline;
using internal_loader::Slot;
using internal_loader::SlotPool;
using internal_loader::TraceLog;

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

// How many calls of Next there are to one that counts what is ready.
constexpr uint32_t kCallsToLook = 16;

// An epoch without a step may come between others, but not for ever.
constexpr int kMostEmptyEpochs = 1000;

// The slots that the options allow, each of which takes so many bytes.
absl::StatusOr<int64_t> CountSlots(const LoaderOptions& options,
                                   int64_t batch_bytes) {
  const int64_t slots = options.prefetch_batches + 1;
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

// Some codes of Next say that no step is lost. The error of a step that is lost
// has another one.
absl::Status OfLostStep(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kResourceExhausted:
      return absl::UnknownError(
          absl::StrCat(status.message(), " (",
                       absl::StatusCodeToString(status.code()), ")"));
    default:
      return status;
  }
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
  LOCKSTEP_RETURN_IF_ERROR(Validate(options));
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
  internal_loader::BatchLayout layout;
  LOCKSTEP_RETURN_IF_ERROR(internal_loader::MakeLayout(
      dataset->fields(), sampler->max_rows(), layout));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const int64_t slots,
      CountSlots(resolved, SlotPool::BytesPerSlot(layout, sampler->max_rows(),
                                                  resolved.memory.get())));
  std::unique_ptr<Loader> loader(new Loader(dataset, resolved, order));
  LOCKSTEP_ASSIGN_OR_RETURN(
      loader->pool_, SlotPool::Create(layout.specs, sampler->max_rows(), slots,
                                      resolved.memory));
  LOCKSTEP_ASSIGN_OR_RETURN(
      loader->pipeline_,
      Pipeline::Create(dataset, std::move(sampler), resolved, loader->pool_));
  return loader;
}

Loader::Loader(std::shared_ptr<Dataset> dataset, const LoaderOptions& options,
               const OrderDescription& order)
    : dataset_(std::move(dataset)), options_(options), order_(order) {}

Loader::~Loader() {
  // The threads of a forked process's parent are not there to be waited for,
  // and may have held any lock.
  if (forked()) static_cast<void>(pipeline_.release());
}

// ---- Going to a place.

absl::Status Loader::CheckFields() const {
  absl::Span<const FieldSpec> now;
  LOCKSTEP_RETURN_IF_ERROR(CatchAll("Dataset::fields", [&] {
    now = dataset_->fields();
    return absl::OkStatus();
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
absl::Status Loader::Restart(const Move& move) {
  errors_.clear();
  if (forked()) return CheckRunning("StartEpoch");
  LOCKSTEP_RETURN_IF_ERROR(sticky_);
  LOCKSTEP_RETURN_IF_ERROR(CheckFields());
  absl::Status status;
  pipeline_->Restart([&](Sampler& sampler) {
    status = CatchAll("the order", [&] { return move(sampler); });
    if (status.ok()) pipeline_->set_progress(sampler.progress());
    return status.ok();
  });
  if (status.ok()) {
    state_ = State::kRunning;
  } else if (state_ != State::kNew) {
    state_ = State::kStopped;
  }
  draining_ = false;
  empty_epochs_ = 0;
  report_steps_ = progress().steps_taken;
  if (counters_.began.load() == 0) counters_.began = Now();
  return status;
}

absl::Status Loader::StartEpoch(int64_t epoch) {
  return CatchAll("StartEpoch", [&]() -> absl::Status {
    if (epoch < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("epoch should be 0 or more, but got epoch=", epoch));
    }
    if (state_ == State::kEnded && options_.prefetch_next_epoch && !draining_ &&
        epoch > progress().epoch && epoch - 1 == progress().epoch &&
        !forked()) {
      LOCKSTEP_RETURN_IF_ERROR(sticky_);
      LOCKSTEP_RETURN_IF_ERROR(CheckFields());
      skip_ = SkipRanges();
      pipeline_->set_progress({epoch, 0, 0, progress().steps_in_total});
      state_ = State::kRunning;
      report_steps_ = 0;
      return absl::OkStatus();
    }
    SamplerState start;
    start.progress = {epoch, 0, 0, progress().steps_in_total};
    start.order_digests = OrderDigests(order_);
    return Restart([&](Sampler& sampler) -> absl::Status {
      epoch_goes_on_ = false;
      LOCKSTEP_RETURN_IF_ERROR(sampler.RestoreState(EncodeState(start)));
      skip_ = SkipRanges();
      return absl::OkStatus();
    });
  });
}

// Where a range of an epoch begins.
absl::Status Loader::GoToEpoch(int64_t epoch) {
  // Only a restore brings more.
  if (state_ == State::kFinished) return sticky_;
  if (epoch_goes_on_ && epoch == progress().epoch) {
    // What has stopped it says so each time, until it is told where to go on.
    epoch_goes_on_ = state_ == State::kStopped;
    return absl::OkStatus();
  }
  return StartEpoch(epoch);
}

absl::Status Loader::RestoreState(absl::string_view bytes,
                                  const RestoreOptions& options) {
  return CatchAll("RestoreState", [&]() -> absl::Status {
    internal_loader::LoaderState state;
    if (bytes.substr(0, 4) == "LSSP") {
      // A sampler's own: it says nothing of the seed.
      state = {options_.seed, std::string(bytes)};
    } else {
      LOCKSTEP_ASSIGN_OR_RETURN(state,
                                internal_loader::DecodeLoaderState(bytes));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(SamplerState position,
                              DecodeState(state.sampler));
    LOCKSTEP_RETURN_IF_ERROR(
        CheckSameOrder(position, order_, options.allow_different));
    if (state.seed != options_.seed) {
      return absl::FailedPreconditionError(
          absl::StrCat("the state was saved by a loader with seed=", state.seed,
                       ", and this one has seed=", options_.seed,
                       ": what samples draw at random would be different"));
    }
    return Restart([&](Sampler& sampler) -> absl::Status {
      epoch_goes_on_ = false;
      LOCKSTEP_RETURN_IF_ERROR(sampler.RestoreState(state.sampler, options));
      skip_epoch_ = position.progress.epoch;
      skip_ = position.skip;
      epoch_goes_on_ = true;
      return absl::OkStatus();
    });
  });
}

absl::Status Loader::Skip(int64_t begin, int64_t end) {
  return CatchAll("Skip", [&]() -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(CheckRunning("Skip"));
    const bool draining = draining_;
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string here, SaveState());
    const std::string sampler_state =
        internal_loader::DecodeLoaderState(here)->sampler;
    absl::Status skipped;
    LOCKSTEP_RETURN_IF_ERROR(Restart([&](Sampler& sampler) -> absl::Status {
      LOCKSTEP_RETURN_IF_ERROR(sampler.RestoreState(sampler_state));
      // What can't be skipped is no reason to stop.
      skipped = sampler.Skip(begin, end);
      skip_epoch_ = sampler.progress().epoch;
      skip_ = sampler.skipped();
      return absl::OkStatus();
    }));
    if (draining) Drain();
    return skipped;
  });
}

absl::StatusOr<std::string> Loader::SaveState() const {
  return CatchAll("SaveState", [&]() -> absl::StatusOr<std::string> {
    if (state_ == State::kNew) {
      return absl::FailedPreconditionError(
          "there is no state before the first StartEpoch or RestoreState");
    }
    if (!pipeline_->in_order()) {
      return absl::FailedPreconditionError(
          "batches were given out of order, and one before them was not yet: "
          "call Drain, and Next until it returns false, and save then");
    }
    return internal_loader::EncodeLoaderState(
        {options_.seed, EncodeState(StateAt(progress()))});
  });
}

SamplerState Loader::StateAt(const Progress& progress) const {
  SamplerState state;
  state.progress = progress;
  if (progress.epoch == skip_epoch_) state.skip = skip_;
  state.order_digests = OrderDigests(order_);
  return state;
}

const Progress& Loader::progress() const { return pipeline_->progress(); }

absl::StatusOr<int64_t> Loader::StepsLeft() const {
  if (over()) return 0;
  Progress from = progress();
  // Out of order, an epoch may have begun without its first step.
  const int64_t epoch = pipeline_->epoch();
  if (epoch != from.epoch) from = {epoch, 0, 0, from.steps_in_total};
  LOCKSTEP_ASSIGN_OR_RETURN(
      int64_t left, CatchAll("the order", [&] {
        return pipeline_->StepsLeftFrom(EncodeState(StateAt(from)));
      }));
  if (options_.max_steps > 0) {
    const int64_t most = options_.max_steps - from.steps_in_total;
    left = std::min(left, std::max<int64_t>(0, most));
  }
  return left - pipeline_->given_ahead();
}

void Loader::Drain() {
  if (state_ != State::kRunning) return;
  draining_ = true;
  pipeline_->Drain();
}

// ---- Giving out batches.

absl::Status Loader::CheckRunning(absl::string_view call) const {
  if (forked()) {
    return absl::FailedPreconditionError(
        "this process was forked from the one that made the loader, and the "
        "workers are not in it: make loaders after the fork");
  }
  LOCKSTEP_RETURN_IF_ERROR(sticky_);
  switch (state_) {
    case State::kRunning:
      return absl::OkStatus();
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

absl::StatusOr<bool> Loader::Next(Batch& batch) {
  batch.ReleaseSlot();
  const absl::StatusOr<Polled> polled =
      CatchAll("Next", [&] { return Advance(batch, true); });
  if (batch.empty()) batch.Release();
  if (!polled.ok()) return polled.status();
  return *polled == Polled::kBatch;
}

absl::StatusOr<Polled> Loader::TryNext(Batch& batch) {
  batch.Release();
  return CatchAll("TryNext", [&] { return Advance(batch, false); });
}

absl::StatusOr<Polled> Loader::Advance(Batch& batch, bool wait) {
  errors_.clear();
  if (!running()) return CheckRunning("Next");
  while (true) {
    if (draining_ && pipeline_->empty()) return EndDrain();
    LOCKSTEP_ASSIGN_OR_RETURN(Entry* const entry, Await(wait));
    if (entry == nullptr) {
      if (!wait) return Polled::kNotReady;
      return absl::DeadlineExceededError(absl::StrCat(
          "there was no batch within timeout=",
          absl::FormatDuration(options_.timeout), ": ", pipeline_->Activity()));
    }
    if (entry->kind == Entry::Kind::kBatch) return GiveOut(*entry, batch);
    if (entry->kind == Entry::Kind::kFailed) {
      const absl::Status status = OfLostStep(entry->status);
      pipeline_->Pop(*entry);
      state_ = State::kStopped;
      return status;
    }
    // Whether workers have come to the end yet is their own concern: that it is
    // drained is said first.
    if (draining_ && IsTold(*entry)) return EndDrain();
    if (EndEpoch(*entry)) return Polled::kEndOfEpoch;
    if (++empty_epochs_ > kMostEmptyEpochs) {
      state_ = State::kStopped;
      return absl::FailedPreconditionError(
          absl::StrCat(kMostEmptyEpochs, " epochs in a row, up to epoch ",
                       progress().epoch, ", had no step"));
    }
  }
}

// Waits for an entry, and keeps account of it.
absl::StatusOr<Entry*> Loader::Await(bool wait) {
  const auto relaxed = std::memory_order_relaxed;
  if (calls_++ % kCallsToLook == 0 && pipeline_->workers() > 0) {
    counters_.looks.store(counters_.looks.load(relaxed) + 1, relaxed);
    counters_.seen_ready.store(
        counters_.seen_ready.load(relaxed) + pipeline_->CountReady(), relaxed);
  }
  absl::StatusOr<Entry*> entry = pipeline_->Await(0);
  if (!entry.ok()) return AwaitFailed(std::move(entry).status());
  if (*entry != nullptr || !wait) return entry;
  const int64_t begin = Now();
  const int64_t patience = absl::ToInt64Nanoseconds(options_.timeout);
  const int64_t deadline =
      patience > kForever - begin ? kForever : begin + patience;
  entry = pipeline_->Await(deadline);
  const int64_t end = Now();
  counters_.waited.store(counters_.waited.load(relaxed) + end - begin, relaxed);
  counters_.waits.store(counters_.waits.load(relaxed) + 1, relaxed);
  if (pipeline_->trace().on()) {
    pipeline_->trace().Add(TraceLog::Kind::kWait, -1, begin, end,
                           progress().epoch, progress().steps_taken);
  }
  if (!entry.ok()) return AwaitFailed(std::move(entry).status());
  return entry;
}

// Only a worker's failure is for good.
absl::Status Loader::AwaitFailed(absl::Status status) {
  if (!pipeline_->failed()) return status;
  sticky_ = pipeline_->failure();
  return sticky_;
}

absl::StatusOr<Polled> Loader::GiveOut(Entry& entry, Batch& batch) {
  const auto relaxed = std::memory_order_relaxed;
  const auto add = [&](std::atomic<int64_t>& counter, int64_t more) {
    counter.store(counter.load(relaxed) + more, relaxed);
  };
  Slot& slot = *entry.slot;
  empty_epochs_ = 0;
  if (!slot.errors.empty() || !slot.substitutions.empty()) {
    add(counters_.failed, static_cast<int64_t>(slot.errors.size()));
    add(counters_.substituted, static_cast<int64_t>(slot.substitutions.size()));
    const int64_t failures =
        counters_.failed.load(relaxed) + counters_.substituted.load(relaxed);
    if (options_.max_failures && failures > *options_.max_failures) {
      const absl::Status last = slot.errors.empty()
                                    ? slot.substitutions.back().why
                                    : slot.errors.back().status;
      sticky_ = absl::ResourceExhaustedError(absl::StrCat(
          failures, " samples could not be read, more than max_failures=",
          *options_.max_failures, " allows; the last one, in epoch ",
          slot.epoch, ", step ", slot.step, ": ", last.ToString()));
      return sticky_;
    }
  }
  if (!slot.status.ok()) {
    const absl::Status status = OfLostStep(slot.status);
    errors_.swap(slot.errors);
    pipeline_->Pop(entry);
    pool_->GiveBack(slot);
    return status;
  }
  batch.Fill(&slot, pool_);
  add(counters_.batches, 1);
  add(counters_.samples, slot.valid);
  add(counters_.bytes, batch.TotalBytes());
  // Once it is given back, a worker may plan another step there.
  const int64_t steps_in_epoch = entry.steps_in_epoch;
  pipeline_->Pop(entry);
  if (options_.progress) ReportProgress(steps_in_epoch);
  return Polled::kBatch;
}

Polled Loader::EndDrain() {
  draining_ = false;
  epoch_goes_on_ = true;
  pipeline_->GoOn();
  return Polled::kEndOfEpoch;
}

// Returns whether the caller is told of this end.
bool Loader::IsTold(const Entry& end) const {
  return end.kind == Entry::Kind::kEndOfSteps || !options_.advance_epochs ||
         end.progress.epoch == std::numeric_limits<int64_t>::max();
}

// Returns whether the caller is told.
bool Loader::EndEpoch(Entry& entry) {
  const bool finished = entry.kind == Entry::Kind::kEndOfSteps;
  const bool told = IsTold(entry);
  pipeline_->Pop(entry);
  if (told) {
    state_ = finished ? State::kFinished : State::kEnded;
    epoch_goes_on_ = false;
  } else {
    report_steps_ = 0;
  }
  return told;
}

void Loader::ReportProgress(int64_t steps_in_epoch) {
  const int64_t now = Now();
  const int64_t samples = counters_.samples.load();
  const int64_t bytes = counters_.bytes.load();
  if (report_time_ == 0) {
    report_time_ = now;
    report_samples_ = samples;
    report_bytes_ = bytes;
    report_steps_ = progress().steps_taken;
    return;
  }
  const int64_t spent = now - report_time_;
  if (spent < absl::ToInt64Nanoseconds(options_.progress_interval)) return;
  const double seconds = std::max<int64_t>(spent, 1) * 1e-9;
  LoaderProgress report;
  report.epoch = progress().epoch;
  report.steps = progress().steps_taken;
  report.steps_in_epoch = std::max(steps_in_epoch, report.steps);
  report.samples = samples;
  report.bytes = bytes;
  report.samples_per_second = (samples - report_samples_) / seconds;
  report.bytes_per_second = (bytes - report_bytes_) / seconds;
  const double steps_per_second =
      std::max<int64_t>(report.steps - report_steps_, 1) / seconds;
  report.seconds_left =
      (report.steps_in_epoch - report.steps) / steps_per_second;
  report_time_ = now;
  report_samples_ = samples;
  report_bytes_ = bytes;
  report_steps_ = report.steps;
  // What a report throws is not the batch's fault.
  CatchAll("progress", [&] {
    options_.progress(report);
    return absl::OkStatus();
  }).IgnoreError();
}

LoaderMetrics Loader::Metrics() const {
  LoaderMetrics metrics;
  metrics.batches = counters_.batches.load();
  metrics.samples = counters_.samples.load();
  metrics.bytes = counters_.bytes.load();
  metrics.failed_samples = counters_.failed.load();
  metrics.substituted_samples = counters_.substituted.load();
  const int64_t began = counters_.began.load();
  metrics.elapsed_seconds = began == 0 ? 0 : (Now() - began) * 1e-9;
  const bool inline_reading = *options_.num_workers == 0;
  metrics.wait_seconds = (inline_reading ? pipeline_->busy_nanoseconds()
                                         : counters_.waited.load()) *
                         1e-9;
  const double asked = std::max<int64_t>(metrics.batches, 1);
  metrics.readiness = metrics.batches == 0 || inline_reading
                          ? 0
                          : std::max(0.0, 1 - counters_.waits.load() / asked);
  metrics.ready_batches =
      counters_.seen_ready.load() / std::max(1.0, 1.0 * counters_.looks.load());
  metrics.requested_workers = *options_.num_workers;
  metrics.effective_workers = pipeline_->effective_workers();
  const double available =
      metrics.elapsed_seconds * std::max(1, metrics.requested_workers);
  metrics.busy =
      available > 0 ? pipeline_->busy_nanoseconds() * 1e-9 / available : 0;
  // A lock of the parent's may be held for ever in a fork.
  if (!forked()) metrics.slowest = pipeline_->slowest().Sorted();
  return metrics;
}

int64_t Loader::ReadyBatches() const { return pipeline_->CountReady(); }

std::string Loader::Trace() const { return pipeline_->trace().ToJson(); }

EpochRange Loader::Epoch(int64_t epoch) { return EpochRange(*this, epoch); }

EpochRange::EpochRange(Loader& loader, int64_t epoch)
    : loader_(&loader), batch_(Batch()) {
  absl::Status status = loader.GoToEpoch(epoch);
  if (!status.ok()) {
    batch_ = std::move(status);
    last_ = true;
  } else if (loader.over()) {
    done_ = true;
  } else {
    Advance();
  }
}

void EpochRange::Advance() {
  if (last_) {
    done_ = true;
    return;
  }
  const bool was_short = absl::IsResourceExhausted(batch_.status());
  if (!batch_.ok()) batch_ = Batch();
  const absl::StatusOr<bool> more = loader_->Next(*batch_);
  if (!more.ok()) {
    batch_ = more.status();
    // A loop that has released no batch since the last element never will.
    last_ = !loader_->running() ||
            (was_short && absl::IsResourceExhausted(more.status()));
  } else {
    done_ = !*more;
  }
}

}  // namespace lockstep
