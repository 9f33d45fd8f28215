#include "lockstep/session/step_loop.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/end_process.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/blocked_time.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/phase.h"
#include "lockstep/session/reports.h"
#include "lockstep/session/shard_sums.h"
#include "lockstep/session/shard_watch.h"
#include "lockstep/session/step.h"
#include "lockstep/session/step_report.h"
#include "lockstep/session/training.h"

namespace lockstep::internal_session {
namespace {

// A step of a rank has at most this weight, which no sum over parts overflows.
constexpr int64_t kMostWeight = int64_t{1} << 53;

double SecondsIn(const std::vector<StepReport::Interval>& intervals) {
  double seconds = 0;
  for (const auto& [begin, end] : intervals) {
    seconds += StepReport::SecondsBetween(begin, end);
  }
  return seconds;
}

}  // namespace

StepLoop::StepLoop(Training& training, Loader& loader, int64_t epoch)
    : training_(training),
      loader_(loader),
      epoch_(epoch),
      sums_(training.shards()) {
  step_.loop_ = this;
  step_.epoch_ = epoch;
}

StepLoop::StepLoop(Training& training, Loader& loader,
                   const StepsOptions& options)
    : training_(training),
      loader_(loader),
      goes_through_(true),
      max_steps_(options.max_steps),
      sums_(training.shards()) {
  step_.loop_ = this;
}

StepLoop::~StepLoop() {
  RunOrEnd("the end of a loop", [this] { Close(/*is_over=*/false); });
}

// `is_over`: all steps of the epoch have ended.
void StepLoop::Close(bool is_over) {
  if (!std::exchange(is_open_, false)) return;
  const bool left_step = training_.phases.in_step();
  training_.TellUnread(loader_, unread_);
  if (left_step) {
    // Without Average, each step may have an update of the trainer's own.
    training_.left_update =
        training_.phases.outer() == Phase::kAveraged || !training_.has_averaged;
    training_.phases.GoTo(Phase::kLeft);
    for (const CheckpointTarget& target :
         std::exchange(training_.named_saves, {})) {
      if (training_.ranks.rank() > 0 || !training_.failure.ok()) continue;
      training_.Log(absl::StrCat("the trainer has left step ", step_.number_,
                                 " of epoch ", step_.epoch_,
                                 ", so the checkpoint '", target.name,
                                 "' is not saved"));
    }
    if (training_.ranks.rank() == 0 && training_.failure.ok()) {
      training_.Log(absl::StrCat(
          "the trainer has left step ", step_.number_, " of epoch ",
          step_.epoch_, " of ", training_.loaders.Describe(loader_),
          ": it does not count, and the rest of the epoch is not read"));
    }
    // The step does not count, so its gradients are thrown away.
    for (const auto& gradients : training_.gradients) {
      gradients->Discard().IgnoreError();
    }
  }
  training_.loaders.EndSteps(loader_, is_over, left_step);
  training_.reports->EndSteps();
}

void StepLoop::Fail(const absl::Status& why) {
  training_.Fail(why);
  step_.status_.Update(why);
}

// ---- Epochs.

void StepLoop::Begin() {
  done_ = false;
  absl::Status begun = training_.CheckLoop("Steps");
  if (begun.ok()) begun = training_.CheckShards(loader_);
  if (begun.ok() && goes_through_) begun = CheckGoesThrough();
  if (!begun.ok()) return Fail(begun);
  if (training_.loaders.FindName(loader_) == nullptr &&
      !loader_.options().advance_epochs) {
    uneven_.emplace(training_.ranks, loader_);
  }
  done_ = training_.IsOver();
  if (!done_ && goes_through_) begun = GoToFirstEpoch();
  if (begun.ok() && !done_) begun = GoOn();
  if (!begun.ok()) Fail(begun);
}

absl::Status StepLoop::CheckGoesThrough() const {
  if (max_steps_ < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_steps of Steps should be 0 or more, but is ", max_steps_));
  }
  if (!training_.loaders.IsInBody(loader_)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "Steps with StepsOptions goes through the epochs of ",
      training_.loaders.Describe(loader_),
      " by itself, and was called in the body of a loop over the same epochs: "
      "leave out that loop, or call Steps(loader, epoch) in it"));
}

absl::Status StepLoop::GoToFirstEpoch() {
  epoch_ = training_.loaders.FirstEpoch(loader_);
  if (uneven_.has_value()) {
    LOCKSTEP_RETURN_IF_ERROR(uneven_->BeginLoop(epoch_));
  }
  if (loader_.options().advance_epochs && epoch_ > loader_.progress().epoch) {
    done_ = true;
    training_.why_no_steps = absl::StrCat(training_.loaders.Describe(loader_),
                                          " has done all of its epochs");
    return absl::OkStatus();
  }
  if (MostLeft() > 0) return absl::OkStatus();
  // An epoch that was over before a restart has still to be ended here.
  LOCKSTEP_ASSIGN_OR_RETURN(const bool has_more, HasMoreToRead());
  done_ = has_more || !training_.loaders.RepeatsEpoch(loader_);
  if (done_) {
    training_.why_no_steps =
        absl::StrCat(training_.loaders.Describe(loader_), " has done ",
                     StepsOfLoader(), " steps, and max_steps allows no more");
  }
  return absl::OkStatus();
}

bool StepLoop::HasNextEpoch() {
  if (!goes_through_ || loader_.options().advance_epochs || MostLeft() <= 0 ||
      training_.IsOver()) {
    return false;
  }
  if (had_steps_ || was_restored_) return true;
  // A loop over a loader that has no steps would never end.
  if (training_.ranks.rank() == 0 && training_.steps > training_.began_at) {
    training_.Log(absl::StrCat(
        "the loop over steps ends, because epoch ", epoch_, " of ",
        training_.loaders.Describe(loader_), " has no step; it has done ",
        StepsOfLoader(), " steps, and max_steps is ", max_steps_));
  }
  return false;
}

int64_t StepLoop::StepsOfLoader() const {
  return uneven_.has_value() ? uneven_->steps()
                             : training_.loaders.StepsOf(loader_);
}

int64_t StepLoop::MostLeft() const {
  int64_t left = std::numeric_limits<int64_t>::max();
  if (max_steps_ > 0) left = max_steps_ - StepsOfLoader();
  if (uneven_.has_value()) return std::min(left, uneven_->most_left());
  const int64_t of_loader = loader_.options().max_steps;
  if (of_loader > 0) {
    left = std::min(left, of_loader - loader_.progress().steps_in_total);
  }
  return left;
}

absl::StatusOr<bool> StepLoop::HasMoreToRead() const {
  if (uneven_.has_value() && is_open_) return uneven_->has_step();
  if (!loader_.options().advance_epochs) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t left, loader_.StepsLeft());
    return left > 0;
  }
  // One range of such a loader has all epochs.
  const int64_t most = loader_.options().max_steps;
  return most == 0 || loader_.progress().steps_in_total < most;
}

absl::Status StepLoop::Open() {
  LOCKSTEP_RETURN_IF_ERROR(training_.loaders.CheckSteps(loader_, epoch_));
  training_.loaders.MarkOthersDone(loader_);
  if (training_.loaders.WasLeft(loader_, epoch_)) {
    training_.loaders.BeginSteps(loader_, epoch_);
    training_.loaders.EndSteps(loader_, /*is_over=*/false, /*left_step=*/true);
    return absl::OkStatus();
  }
  was_restored_ = training_.loaders.IsRestored(loader_) &&
                  epoch_ == loader_.progress().epoch;
  had_steps_ = false;
  LOCKSTEP_RETURN_IF_ERROR(BeginEpoch());
  is_open_ = true;
  asked_ = before_ = SteadyNow();
  blocked_before_ = TimeBlocked();
  training_.reports->BeginSteps(asked_);
  training_.reports->KeepEventsOf(loader_);
  // The rest of an epoch that the trainer had left is given up.
  if (epoch_ > loader_.progress().epoch && !loader_.over()) {
    const absl::Status started = loader_.StartEpoch(epoch_);
    if (!started.ok()) {
      return training_.InLoader(loader_, NextKind::kStopped, started);
    }
  }
  batches_.reset();
  if (uneven_.has_value()) {
    const absl::Status agreed = uneven_->BeginEpoch(epoch_);
    if (!agreed.ok()) {
      return training_.InLoader(loader_, NextKind::kStopped, agreed);
    }
    if (!uneven_->has_data()) return absl::OkStatus();
  }
  batches_.emplace(loader_.Epoch(epoch_));
  at_.emplace(batches_->begin());
  return absl::OkStatus();
}

absl::Status StepLoop::BeginEpoch() {
  LOCKSTEP_RETURN_IF_ERROR(
      training_.CallHooks(Phase::kOnEpochBegin, [&](SessionHooks& hooks) {
        return hooks.OnEpochBegin(training_.session, epoch_);
      }));
  training_.loaders.BeginSteps(loader_, epoch_);
  return absl::OkStatus();
}

absl::Status StepLoop::GoOn() {
  for (;;) {
    if (!is_open_) LOCKSTEP_RETURN_IF_ERROR(Open());
    if (is_open_) {
      if (HasStep()) return BeginStep();
      LOCKSTEP_RETURN_IF_ERROR(EndEpoch());
      done_ = !HasNextEpoch();
    } else {
      done_ = !goes_through_ || MostLeft() <= 0;
    }
    if (done_) return absl::OkStatus();
    ++epoch_;
  }
}

void StepLoop::Advance() {
  done_ = !step_.status_.ok();
  if (done_) return;
  absl::Status status = EndStep();
  if (!status.ok()) return Fail(status);
  done_ = is_paused_ || training_.IsOver();
  if (done_) {
    Close(/*is_over=*/false);
    if (!is_paused_) return;
    loader_.KeepPlace();
    training_.loaders.MarkPaused(loader_);
    return;
  }
  asked_ = SteadyNow();
  blocked_before_ = TimeBlocked();
  if (HasBatch()) ++*at_;
  status = GoOn();
  if (!status.ok()) Fail(status);
}

absl::Status StepLoop::EndEpoch() {
  Close(/*is_over=*/true);
  if (!had_steps_ && !was_restored_ && MostLeft() > 0) {
    training_.had_empty_epoch = true;
  }
  NoteMissingAverage();
  if (training_.steps == training_.began_at) {
    training_.why_no_steps =
        absl::StrCat("epoch ", epoch_, " of ",
                     training_.loaders.Describe(loader_), " has no step left");
  }
  // Hooks are called after the checkpoint was saved, since a training that
  // continues from it calls them again. After the last step, the checkpoint may
  // exist already.
  if (!training_.job.checkpoint.path.empty() &&
      training_.saved_steps != training_.steps) {
    LOCKSTEP_RETURN_IF_ERROR(training_.Save(/*is_numbered=*/true));
  }
  // The checkpoint from which the training continues may be a later one, which
  // was saved in the steps of another loader.
  if (training_.loaders.IsHooked(loader_)) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(
      training_.CallHooks(Phase::kOnEpochEnd, [&](SessionHooks& hooks) {
        return hooks.OnEpochEnd(training_.session, epoch_);
      }));
  training_.loaders.MarkHooked(loader_);
  // In a loop through epochs, no code of the trainer belongs to an epoch.
  if (goes_through_) training_.loaders.EndBody(loader_);
  return absl::OkStatus();
}

// By its first step, a trainer has normally made all of its loaders.
void StepLoop::NoteFirstStep() {
  training_.has_begun = true;
  if (training_.ranks.rank() > 0) return;
  for (const auto& [name, table] : training_.job.loaders) {
    if (training_.loaders.Has(name)) continue;
    training_.Log(
        absl::StrCat("the job has a table [loader.", name,
                     "], of which the trainer has made no loader so far"));
  }
}

void StepLoop::NoteMissingAverage() {
  if (training_.ranks.rank() > 0 || training_.gradients.empty() ||
      !training_.has_begun || training_.has_averaged ||
      std::exchange(training_.logged_no_average, true)) {
    return;
  }
  training_.Log(
      absl::StrCat("the trainer has made gradients, and has not called Average "
                   "in epoch ",
                   epoch_, ": each rank trains a model of its own"));
}

// ---- Steps.

absl::StatusOr<Batch*> StepLoop::EmptyBatch() {
  if (uneven_->own_left() > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this loader has given no batch for step ", uneven_->number(),
        " of epoch ", epoch_, ", although ", uneven_->own_left(),
        " steps were left: within its steps, let the loop alone read a loader, "
        "and do not call Drain"));
  }
  if (is_exact()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this rank has no data in step ", uneven_->number(), " of epoch ",
        epoch_,
        ", which other ranks have: with gradients.exact, all ranks cut the "
        "same stream into shards, so give their loaders the same dataset, "
        "order and place"));
  }
  empty_.Release();  // before its memory is used again
  absl::StatusOr<Batch> empty = loader_.EmptyBatch(epoch_, uneven_->number());
  if (!empty.ok()) {
    return training_.InLoader(loader_, NextKind::kFailedStep, empty.status());
  }
  empty_ = *std::move(empty);
  return &empty_;
}

absl::StatusOr<Batch*> StepLoop::FirstBatch() {
  if (!HasBatch()) return EmptyBatch();
  absl::StatusOr<Batch>& next = **at_;
  if (next.ok()) return &*next;
  return training_.InLoader(loader_, batches_->kind(), next.status());
}

absl::Status StepLoop::BeginStep() {
  LOCKSTEP_ASSIGN_OR_RETURN(Batch* const next, FirstBatch());
  had_steps_ = true;
  waits_.assign(1, {asked_, SteadyNow()});
  averages_.clear();
  training_.save_requested = false;
  if (!training_.has_begun) NoteFirstStep();
  training_.reports->BeginStep();
  step_.epoch_ = next->epoch();
  step_.number_ = uneven_.has_value() ? uneven_->number() : next->step();
  step_.global_number_ = training_.steps + 1;
  step_.parts_ = next->parts();
  step_.batch_ = nullptr;
  has_begun_parts_ = false;
  rows_ = 0;
  sums_.Clear();
  weight_before_ = 0;
  sources_ = WeightSources();
  has_part_weight_ = false;
  for (ShardWatch& watch : training_.watches) watch.BeginStep();
  step_.total_weight_ = 0;
  step_.means_ = {};
  if (training_.steps + 1 == training_.options.stop_after) {
    training_.RequestStop();
  }
  is_weight_rows_ = true;
  for (const auto& gradients : training_.gradients) {
    LOCKSTEP_RETURN_IF_ERROR(
        InStep(gradients->BeginStep(static_cast<int>(step_.parts_))));
  }
  training_.phases.GoTo(Phase::kStep);
  return TakePart(*next, /*part=*/0);
}

absl::Status StepLoop::TakePart(Batch& batch, int64_t part) {
  if (batch.part() != part || batch.parts() != step_.parts_) {
    return absl::FailedPreconditionError(absl::StrCat(
        training_.loaders.Describe(loader_), " was read elsewhere within ",
        NameOfStep(), ", since part ", batch.part(), " of ", batch.parts(),
        " came where part ", part, " of ", step_.parts_,
        " was due: within its steps, let the loop alone read a loader"));
  }
  if (part > 0 && batch.shard() != shard_) EndShard();
  batch_ = &batch;
  part_ = part;
  shard_ = batch.shard();
  training_.AddUnread(loader_, batch, unread_);
  rows_ += batch.valid();
  if (is_weight_rows_) step_.weight_ = rows_;
  const auto number = static_cast<int>(part_);
  for (const auto& gradients : training_.gradients) {
    if (is_exact()) {
      LOCKSTEP_RETURN_IF_ERROR(InStep(gradients->BeginPart(number, shard_)));
    } else if (step_.parts_ > 1) {
      LOCKSTEP_RETURN_IF_ERROR(InStep(gradients->BeginPart(number)));
    }
  }
  return training_.CallHooks(Phase::kOnBatch, [&](SessionHooks& hooks) {
    return hooks.OnBatch(training_.session, step_, batch);
  });
}

absl::Status StepLoop::ReadNextPart() {
  LOCKSTEP_RETURN_IF_ERROR(EndPart());
  const SteadyTime asked = SteadyNow();
  ++*at_;
  waits_.emplace_back(asked, SteadyNow());
  absl::StatusOr<Batch>& next = **at_;
  if (!next.ok()) {
    return training_.InLoader(loader_, batches_->kind(), next.status());
  }
  return TakePart(*next, part_ + 1);
}

absl::Status StepLoop::EndPart() {
  if (std::exchange(has_part_weight_, false)) {
    sources_.calls = true;
  } else if (batch_->valid() > 0) {
    sources_.rows = true;
  }
  return InStep(sums_.EndPart(shard_));
}

// Without shards, what a rank has added is of all of its batches.
WeightSources StepLoop::SourcesOfWeight() const {
  if (is_exact()) return sources_;
  return {!is_weight_rows_, is_weight_rows_ && rows_ > 0};
}

void StepLoop::EndShard() {
  if (!is_exact() || shard_ < 0) return;
  const bool has_weight = step_.weight_ > weight_before_;
  weight_before_ = step_.weight_;
  for (size_t i = 0; i < training_.watches.size(); ++i) {
    ShardWatch& watch = training_.watches[i];
    if (!watch.is_on()) continue;
    watch.EndShard(has_weight, training_.gradients[i]->AreZero());
  }
}

void StepLoop::EndLastShard(const Gradients& averaged) {
  for (size_t i = 0; i < training_.watches.size(); ++i) {
    ShardWatch& watch = training_.watches[i];
    if (training_.gradients[i].get() != &averaged || !watch.is_on()) continue;
    if (shard_ >= 0) {
      watch.EndShard(step_.weight_ > weight_before_, averaged.AreZero());
    }
    if (!watch.EndStep()) continue;
    training_.Log(absl::StrCat(
        "rank ", training_.ranks.rank(), ": in each of ", watch.steps(),
        " steps, the gradients '", averaged.groups()[0]->name(),
        "' were 0 at the end of all shards but the last one. If the trainer "
        "adds up those of several batches in memory of its own, other ranks "
        "give other bits: let it add those of each batch in the loop over the "
        "batches of a step; --verify --verify_ranks tells"));
  }
}

absl::Status StepLoop::CheckAllParts(absl::string_view before) const {
  if (part_ + 1 == step_.parts_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the trainer has read ", has_begun_parts_ ? part_ + 1 : 0, " of the ",
      step_.parts_, " batches of ", NameOfStep(), " before ", before,
      ": loop over the batches of each step to the end"));
}

absl::Status StepLoop::EndStep() {
  LOCKSTEP_RETURN_IF_ERROR(training_.failure);
  LOCKSTEP_RETURN_IF_ERROR(CheckAllParts("the next step"));
  for (const auto& gradients : training_.gradients) {
    LOCKSTEP_RETURN_IF_ERROR(InStep(gradients->EndStep()));
    training_.Follow(*gradients);
  }
  // A trainer that averages elsewhere must still stop together with the others.
  if (training_.phases.outer() == Phase::kStep) {
    LOCKSTEP_RETURN_IF_ERROR(EndPart());
    // Another rank may have called Average, so the name shows that this one has
    // not.
    int64_t weight = step_.weight_;
    LOCKSTEP_RETURN_IF_ERROR(
        training_.AddUp(weight, SourcesOfWeight(), sums_,
                        absl::StrCat(NameOfStep(), ", without Average"),
                        /*averaged=*/nullptr, means_));
    TakeSums(weight);
  }
  const SteadyTime ended = SteadyNow();
  ++training_.steps;
  training_.loaders.CountStep(loader_);
  if (uneven_.has_value()) uneven_->EndStep();
  training_.phases.GoTo(Phase::kBetween);
  if (training_.reports->on()) Report(ended);
  before_ = ended;
  LOCKSTEP_RETURN_IF_ERROR(
      training_.CallHooks(Phase::kOnStep, [&](SessionHooks& hooks) {
        return hooks.OnStep(training_.session, step_);
      }));
  if (goes_through_ && MostLeft() <= 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(is_paused_, HasMoreToRead());
  }
  // The previous checkpoint may have failed while it was written.
  LOCKSTEP_RETURN_IF_ERROR(training_.checkpoint->status());
  const bool has_path = !training_.job.checkpoint.path.empty();
  return training_.Save(has_path &&
                        (training_.IsOver() || is_paused_ ||
                         training_.save_requested ||
                         training_.checkpoint->IsDue(training_.steps)));
}

// Gives the step what was added up over all ranks.
void StepLoop::TakeSums(int64_t total_weight) {
  step_.total_weight_ = total_weight;
  step_.means_ = means_.values;
  training_.phases.GoTo(Phase::kAveraged);
}

void StepLoop::Report(SteadyTime ended) {
  StepReport report;
  report.loader = training_.loaders.NameOf(loader_);
  report.epoch = step_.epoch_;
  report.number = step_.number_;
  report.steps = training_.steps;
  report.rows = rows_;
  report.position = loader_.progress().position;
  report.total_weight = step_.total_weight_;
  report.is_weight_rows = is_weight_rows_;
  report.means = means_.values;
  report.mean_weights = means_.weights;
  report.before = before_;
  report.asked = asked_;
  report.ended = ended;
  report.waits = waits_;
  report.averages = averages_;
  report.data_seconds = SecondsIn(waits_);
  report.average_seconds = SecondsIn(averages_);
  report.blocked_seconds =
      absl::ToDoubleSeconds(TimeBlocked() - blocked_before_);
  report.most_left = MostLeft();
  training_.reports->EndStep(report, loader_);
}

// ---- Calls of the trainer in a step.

void StepLoop::BeginParts() {
  step_.batch_ = nullptr;
  if (!step_.status_.ok()) return;
  if (std::exchange(has_begun_parts_, true)) {
    return Fail(absl::FailedPreconditionError(absl::StrCat(
        "a loop over the batches of ", NameOfStep(),
        " was begun twice, and batches are given out once: do in one loop "
        "what needs them")));
  }
  step_.batch_ = batch_;
}

void StepLoop::NextPart() {
  step_.batch_ = nullptr;
  if (!step_.status_.ok() || part_ + 1 == step_.parts_) return;
  const absl::Status read = ReadNextPart();
  if (!read.ok()) return Fail(read);
  step_.batch_ = batch_;
}

absl::Status StepLoop::CheckInStep(Call call, absl::string_view name) const {
  LOCKSTEP_RETURN_IF_ERROR(step_.status_);
  if (call == Call::kAdd && training_.phases.now() == Phase::kAveraged) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, " comes after Average in step ", step_.number_, " of epoch ",
        step_.epoch_,
        ", where the ranks have already added up: call it before"));
  }
  return training_.Check(call, name);
}

absl::Status StepLoop::CheckInPart(absl::string_view name) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckInStep(Call::kAdd, name));
  if (!is_exact() || step_.batch_ != nullptr) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      name, " comes outside of the loop over the batches of ", NameOfStep(),
      ": with gradients.exact, sums and weights are of the shard of a batch: "
      "call it in that loop, for each batch"));
}

void StepLoop::Add(absl::string_view name, double sum,
                   std::optional<double> weight) {
  const absl::Status allowed = CheckInPart(absl::StrCat("Add(", name, ")"));
  if (!allowed.ok()) return Fail(allowed);
  if (weight.has_value()) {
    sums_.part().Add(name, sum, *weight);
  } else {
    sums_.part().Add(name, sum);
  }
}

void StepLoop::AddWeight(int64_t weight) {
  absl::Status allowed = CheckInPart("AddWeight");
  if (allowed.ok() && (weight < 0 || weight > kMostWeight)) {
    allowed = absl::InvalidArgumentError(
        absl::StrCat("AddWeight(", weight, ") in ", NameOfStep(),
                     ": a weight should be from 0 to ", kMostWeight));
  }
  if (allowed.ok() && is_exact() && shard_ < 0 && weight > 0) {
    allowed = absl::FailedPreconditionError(absl::StrCat(
        "AddWeight(", weight, ") in ", NameOfStep(),
        " is for a batch without rows (Batch::shard is -1), of which there are "
        "more or fewer on another number of ranks: with gradients.exact, add "
        "what rows weigh"));
  }
  if (!allowed.ok()) return Fail(allowed);
  has_part_weight_ = true;
  if (std::exchange(is_weight_rows_, false)) step_.weight_ = 0;
  step_.weight_ = std::min(step_.weight_ + weight, kMostWeight + 1);
}

absl::Status StepLoop::Average(Gradients& gradients) {
  LOCKSTEP_RETURN_IF_ERROR(CheckInStep(Call::kAverage, "Average"));
  LOCKSTEP_RETURN_IF_ERROR(CheckAllParts("Average"));
  const bool is_first = training_.phases.now() == Phase::kStep;
  training_.has_averaged = true;
  const SteadyTime called = SteadyNow();
  // The sums of the step travel with the gradients of its first model.
  int64_t weight = step_.weight_;
  Means unused;
  absl::Status averaged = is_first ? EndPart() : absl::OkStatus();
  EndLastShard(gradients);
  if (averaged.ok()) {
    averaged =
        training_.AddUp(weight, is_first ? SourcesOfWeight() : WeightSources(),
                        is_first ? sums_ : ShardSums(training_.shards()),
                        NameOfStep(), &gradients, is_first ? means_ : unused);
  }
  averages_.emplace_back(called, SteadyNow());
  if (averaged.ok() && is_first) TakeSums(weight);
  if (!averaged.ok()) Fail(averaged);
  return averaged;
}

// Returns the name of a collective. The ranks compare it, which shows that they
// are in the same step.
std::string StepLoop::NameOfStep() const {
  return absl::StrCat("step ", step_.number_, " of epoch ", step_.epoch_);
}

absl::Status StepLoop::InStep(const absl::Status& error) const {
  return error.ok() ? error
                    : Annotate(error, absl::StrCat("in ", NameOfStep()));
}

}  // namespace lockstep::internal_session
