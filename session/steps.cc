// The functions of a session for the steps of a training, and for an
// evaluation.
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/work.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/session/gradient_memory.h"
#include "lockstep/session/gradients.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/reports.h"
#include "lockstep/session/session.h"
#include "lockstep/session/step_report.h"
#include "lockstep/session/sums.h"
#include "lockstep/session/tally.h"

namespace lockstep {
namespace {

using internal_session::kMostSums;
using internal_session::kMostTallied;
using internal_session::kMostWeight;
using internal_session::kTalliedFirst;
using internal_session::StepReport;
using internal_session::Tally;

// The maximum length of the names of sums, in bytes. They are part of an
// operation's name.
constexpr size_t kMostNames = 200;

absl::Status CheckSums(const Sums& sums) {
  if (sums.values().size() > kMostSums) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step has ", sums.values().size(),
                     " sums; accepted are ", kMostSums, " at most"));
  }
  if (sums.names().size() > kMostNames) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the names of a step's sums have ", sums.names().size(),
        " bytes; accepted are ", kMostNames, " at most: ", sums.names()));
  }
  return absl::OkStatus();
}

absl::Status CheckWeight(int64_t weight) {
  if (weight >= 0 && weight <= kMostWeight) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the weight of a step is ", weight,
                   "; it should be from 0 to ", kMostWeight));
}

template <typename Float>
absl::Status AllReduce(Communicator& group, Float* values, int64_t count,
                       absl::string_view what, const Sums& sums) {
  CallOptions options;
  options.name = sums.names().empty() ? std::string(what)
                                      : absl::StrCat(what, ": ", sums.names());
  const Buffer buffer = BufferOf(values, count);
  return Wait(group.AllReduce(buffer, buffer, ReduceOp::kSum, options));
}

}  // namespace

// ---- Steps.

EpochNumbers Session::Epochs(const Loader& loader, int64_t epochs) {
  const int64_t epoch = loader.progress().epoch;
  // Such a loader goes through all epochs in one range of steps.
  if (loader.options().advance_epochs) {
    return {*this, loader, epoch, epoch + 1};
  }
  const auto ended = ended_.find(&loader);
  const bool is_over = ended != ended_.end() && ended->second == epoch;
  if (restored_epochs_.count(&loader) > 0 && epoch >= epochs && rank() == 0) {
    Log(absl::StrCat("no epoch is left: the checkpoint is in epoch ", epoch,
                     ", counted from 0, and the trainer wants ", epochs));
  }
  return {*this, loader, epoch + (is_over ? 1 : 0), epochs};
}

bool EpochNumbers::over() const {
  if (!session_.CheckGoesOn().ok()) return true;
  // After a restart at the end of an epoch, the code that follows its steps is
  // repeated, even if no step is left.
  if (session_.restored_epochs_.count(&loader_) > 0) return false;
  const int64_t most = loader_.options().max_steps;
  return most > 0 && loader_.progress().steps_in_total >= most;
}

// Returns CANCELLED if the training stops on request, or its first failure.
absl::Status Session::CheckGoesOn() const {
  LOCKSTEP_RETURN_IF_ERROR(failure_);
  if (!stopping_) return absl::OkStatus();
  return absl::CancelledError("the training stops, as was asked");
}

StepRange Session::Steps(Loader& loader, int64_t epoch) {
  return {*this, loader, epoch};
}

StepRange::StepRange(Session& session, Loader& loader, int64_t epoch)
    : session_(session), loader_(loader), epoch_(epoch) {
  step_.session_ = &session;
  step_.epoch_ = epoch;
  done_ = session.stopping();
  if (done_) return;
  const absl::Status begun = session.BeginEpoch(loader, epoch);
  if (!begun.ok()) {
    Fail(begun);
    return;
  }
  step_.asked_ = step_.before_ = SteadyNow();
  session.reports_->BeginSteps(step_.asked_);
  batches_.emplace(loader.Epoch(epoch));
  at_.emplace(batches_->begin());
  Take();
}

StepRange::~StepRange() {
  session_.left_step_ = session_.is_in_step_;
  session_.is_in_step_ = false;
  CatchAll("a report", [&] {
    session_.reports_->EndSteps();
    return absl::OkStatus();
  }).IgnoreError();
}

void StepRange::Fail(const absl::Status& why) {
  session_.Fail(why);
  step_.status_ = why;
}

void StepRange::Take() {
  if (*at_ != batches_->end()) {
    absl::StatusOr<Batch>& batch = **at_;
    if (!batch.ok()) return Fail(session_.InLoader(loader_, batch.status()));
    step_.batch_ = &*batch;
    const absl::Status begun = session_.BeginStep(step_);
    if (!begun.ok()) Fail(begun);
    return;
  }
  const absl::Status ended = session_.EndEpoch(loader_, epoch_);
  if (!ended.ok()) return Fail(ended);
  done_ = true;
}

void StepRange::Advance() {
  done_ = !step_.status_.ok();
  if (done_) return;
  const absl::Status ended = session_.EndStep(step_, loader_);
  if (!ended.ok()) return Fail(ended);
  done_ = session_.stopping();
  if (done_) return;
  step_.asked_ = SteadyNow();
  ++*at_;
  Take();
}

absl::Status Session::BeginEpoch(const Loader& loader, int64_t epoch) {
  LOCKSTEP_RETURN_IF_ERROR(CheckGoesOn());
  LOCKSTEP_RETURN_IF_ERROR(CheckIsSaved(loader));
  LOCKSTEP_RETURN_IF_ERROR(CheckGoesOnIn(loader, epoch));
  LOCKSTEP_RETURN_IF_ERROR(CallHooks("epoch begin", [&](SessionHooks& hooks) {
    return hooks.OnEpochBegin(*this, epoch);
  }));
  stepped_loaders_.insert(&loader);  // from now on, its position is saved
  return absl::OkStatus();
}

absl::Status Session::EndEpoch(const Loader& loader, int64_t epoch) {
  reports_->EndSteps();
  NoteEndOfEpoch(loader, epoch);
  // Hooks are called after the checkpoint was saved, since a training that
  // continues from it calls them again. After the last step, the checkpoint may
  // exist already.
  if (saved_steps_ != steps_) LOCKSTEP_RETURN_IF_ERROR(Save());
  return CallHooks("epoch end", [&](SessionHooks& hooks) {
    return hooks.OnEpochEnd(*this, epoch);
  });
}

// By its first step, a trainer has normally made all of its loaders.
void Session::NoteFirstStep() {
  has_begun_ = true;
  if (rank() > 0) return;
  for (const auto& [name, table] : job_.loaders) {
    if (loaders_.count(name) > 0) continue;
    Log(absl::StrCat("the job has a table [loader.", name,
                     "], of which the trainer has made no loader so far"));
  }
}

void Session::NoteEndOfEpoch(const Loader& loader, int64_t epoch) {
  ended_[&loader] = epoch;
  if (rank() > 0 || gradients_.empty() || !has_begun_ || is_averaging_) return;
  is_averaging_ = true;  // so that this is logged once
  Log(
      absl::StrCat("the trainer has made gradients, and has not called Average "
                   "in epoch ",
                   epoch, ": each rank trains a model of its own"));
}

absl::Status Session::InLoader(const Loader& loader,
                               const absl::Status& error) const {
  const std::string* const name = FindName(loader);
  if (name == nullptr) return error;
  absl::Status named =
      internal_plugin::InPart(error, absl::StrCat("loader.", *name), Config());
  // Only a wait that was given up has this code.
  if (!absl::IsCancelled(error) || !stop_requested()) return named;
  return absl::CancelledError(absl::StrCat(
      "the training was asked to stop, and no data came within stop.patience=",
      absl::FormatDuration(job_.stop.patience), ", so nothing was saved now; ",
      saved_steps_ < 0 ? "there is no checkpoint"
                       : absl::StrCat("the last checkpoint is after ",
                                      saved_steps_, " steps"),
      ": start the job again, and raise stop.patience if data is only slow; ",
      named.message()));
}

void Session::RequestStop() {
  SteadyTime::rep never = kNever;
  stop_requested_at_.compare_exchange_strong(
      never, SteadyNow().time_since_epoch().count());
}

bool Session::IsStopOver(absl::Duration waited) const {
  const SteadyTime::rep asked = stop_requested_at_;
  return asked != kNever && waited >= job_.stop.patience &&
         Passed(SteadyTime(SteadyTime::duration(asked)), job_.stop.patience,
                SteadyNow());
}

const std::string* Session::FindName(const Loader& loader) const {
  for (const auto& [name, own] : loaders_) {
    if (own.get() == &loader) return &name;
  }
  return nullptr;
}

std::string Session::NameOf(const Loader& loader) const {
  const std::string* const name = FindName(loader);
  return name != nullptr ? *name : "loader";
}

absl::Status Session::BeginStep(Step& step) {
  step.begun_ = SteadyNow();
  if (!has_begun_) NoteFirstStep();
  reports_->BeginStep();
  step.number_ = step.batch_->step();
  step.batch_epoch_ = step.batch_->epoch();
  step.weight_ = step.rows_ = step.batch_->valid();
  step.is_weight_rows_ = true;
  step.sums_.Clear();
  step.is_added_up_ = false;
  is_in_step_ = true;
  left_step_ = false;
  if (steps_ + 1 == last_step_) RequestStop();
  for (const auto& gradients : gradients_) {
    gradients->is_averaged_ = false;
    LOCKSTEP_RETURN_IF_ERROR(gradients->SetToZero());
  }
  return absl::OkStatus();
}

absl::Status Session::EndStep(Step& step, const Loader& loader) {
  // A trainer that averages elsewhere must still stop together with the others.
  if (!step.is_added_up_) {
    // Another rank may have called Average, so the name shows that this one has
    // not.
    LOCKSTEP_RETURN_IF_ERROR(
        AddUp(step, absl::StrCat(NameOf(step, nullptr), ", without Average")));
  }
  const SteadyTime ended = SteadyNow();
  ++steps_;
  is_in_step_ = false;
  if (reports_->on()) Report(step, loader, ended);
  step.before_ = ended;
  LOCKSTEP_RETURN_IF_ERROR(CallHooks(
      "step", [&](SessionHooks& hooks) { return hooks.OnStep(*this, step); }));
  // The previous checkpoint may have failed while it was written.
  LOCKSTEP_RETURN_IF_ERROR(checkpoint_->status());
  const bool saves = stopping_ || save_requested_ || checkpoint_->IsDue(steps_);
  return saves ? Save() : absl::OkStatus();
}

void Session::Report(const Step& step, const Loader& loader, SteadyTime ended) {
  StepReport report;
  report.loader = NameOf(loader);
  report.epoch = step.batch_epoch_;
  report.number = step.number_;
  report.steps = steps_;
  report.rows = step.rows_;
  report.position = loader.progress().position;
  report.total_weight = step.total_weight_;
  report.is_weight_rows = step.is_weight_rows_;
  report.means = step.means_;
  report.before = step.before_;
  report.asked = step.asked_;
  report.begun = step.begun_;
  report.ended = ended;
  reports_->EndStep(report, loader);
}

void Step::RefuseAfterAverage(absl::string_view call) {
  status_.Update(absl::FailedPreconditionError(absl::StrCat(
      call, " comes after Average in step ", number_, " of epoch ", epoch_,
      ", where the ranks have already added up: call it before")));
  session_->Fail(status_);
}

void Step::Add(absl::string_view name, double sum) {
  if (is_added_up_) return RefuseAfterAverage(absl::StrCat("Add(", name, ")"));
  sums_.Add(name, sum);
}

void Step::set_weight(int64_t weight) {
  if (is_added_up_) return RefuseAfterAverage("set_weight");
  weight_ = weight;
  is_weight_rows_ = false;
}

absl::Status Step::Average(Gradients& gradients) {
  LOCKSTEP_RETURN_IF_ERROR(status_);
  status_ = session_->Average(*this, gradients);
  session_->Fail(status_);
  return status_;
}

absl::Status Session::Average(Step& step, Gradients& gradients) {
  if (gradients.is_averaged_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "these gradients were averaged before in step ", step.number_,
        " of epoch ", step.epoch_, "; call Average once in a step"));
  }
  gradients.is_averaged_ = is_averaging_ = true;
  return gradients.on_host() ? AverageOnHost(step, gradients)
                             : AverageOnDevice(step, gradients);
}

// Returns the name of a collective. The ranks compare it, which shows that they
// are in the same step with the same model.
std::string Session::NameOf(const Step& step, const Gradients* gradients) {
  std::string name =
      absl::StrCat("step ", step.number_, " of epoch ", step.epoch_);
  if (gradients != nullptr && gradients->number_ > 0) {
    absl::StrAppend(&name, ", model ", gradients->number_);
  }
  return name;
}

absl::Status Session::AverageOnHost(Step& step, Gradients& gradients) {
  float* const values = gradients.memory_->data();
  if (!step.is_added_up_) {
    LOCKSTEP_RETURN_IF_ERROR(
        AddUp(step, values, gradients.size_, NameOf(step, &gradients)));
  } else if (size() > 1) {
    LOCKSTEP_RETURN_IF_ERROR(AllReduce(*host_group_, values, gradients.size_,
                                       NameOf(step, &gradients), Sums()));
  }
  if (step.total_weight_ == 0) return gradients.SetToZero();
  const auto divisor = static_cast<float>(step.total_weight_);
  for (int64_t i = 0; i < gradients.size_; ++i) values[i] /= divisor;
  return absl::OkStatus();
}

// The total weight must be known before the collective, since the session
// cannot divide on the device afterwards.
absl::Status Session::AverageOnDevice(Step& step, Gradients& gradients) {
  if (!step.is_added_up_) {
    LOCKSTEP_RETURN_IF_ERROR(AddUp(step, NameOf(step, nullptr)));
  }
  if (step.total_weight_ == 0) return gradients.SetToZero();
  CallOptions options;
  options.name = NameOf(step, &gradients);
  options.scale = 1 / static_cast<double>(step.total_weight_);
  const Buffer buffer = gradients.buffer();
  return Do(gradients, options,
            [&](Communicator& group, const CallOptions& options) {
              return group.AllReduce(buffer, buffer, ReduceOp::kSum, options);
            });
}

absl::Status Session::AddUp(Step& step, absl::string_view what) {
  std::array<double, kMostTallied> elements;
  return AddUp(step, elements.data(), 0, what);
}

template <typename Float>
absl::Status Session::AddUp(Step& step, Float* values, int64_t count,
                            absl::string_view what) {
  Tally tally;
  tally.weight = step.weight_;
  LOCKSTEP_RETURN_IF_ERROR(
      AddUp(tally, step.sums_, values, count, what, step.means_));
  step.total_weight_ = tally.weight;
  step.is_added_up_ = true;
  return absl::OkStatus();
}

template <typename Float>
absl::Status Session::AddUp(Tally& tally, const Sums& sums, Float* values,
                            int64_t count, absl::string_view what,
                            std::vector<Metric>& means) {
  LOCKSTEP_RETURN_IF_ERROR(CheckWeight(tally.weight));
  LOCKSTEP_RETURN_IF_ERROR(CheckSums(sums));
  tally.stops = stop_requested() ? 1 : 0;
  means.assign(sums.values().begin(), sums.values().end());
  if (size() > 1) {
    tally.Write(means, values + count);
    LOCKSTEP_RETURN_IF_ERROR(
        AllReduce(*host_group_, values,
                  count + kTalliedFirst + static_cast<int64_t>(means.size()),
                  what, sums));
    tally.Read(values + count, absl::MakeSpan(means));
  }
  if (tally.weight > 0) {
    for (Metric& mean : means) mean.value /= static_cast<double>(tally.weight);
  }
  if (tally.stops > 0 && !stopping_) {
    stopping_ = true;
    if (rank() == 0) {
      Log(absl::StrCat("the training stops after step ",
                       steps_ + (is_in_step_ ? 1 : 0), ", as was asked on ",
                       tally.stops, " of ", size(), " ranks"));
    }
  }
  return absl::OkStatus();
}

// ---- Evaluation.

absl::StatusOr<Evaluation> Session::Evaluate(
    Loader& loader,
    const std::function<absl::Status(const Batch& batch, Sums& sums)>&
        evaluate) {
  LOCKSTEP_RETURN_IF_ERROR(CheckGoesOn());
  if (loader.options().advance_epochs || loader.options().max_steps > 0) {
    return absl::InvalidArgumentError(
        "an evaluation reads one epoch: leave advance_epochs and max_steps of "
        "its loader as they are");
  }
  Sums sums;
  Tally tally;
  LOCKSTEP_RETURN_IF_ERROR(loader.StartEpoch(0));
  Batch batch;
  for (;;) {
    const absl::StatusOr<bool> more = loader.Next(batch);
    if (!more.ok()) {
      const absl::Status failed = InLoader(loader, more.status());
      // The loader is stuck, so the training ends whatever the trainer does.
      if (absl::IsCancelled(failed)) Fail(failed);
      return failed;
    }
    if (!*more) break;
    LOCKSTEP_RETURN_IF_ERROR(evaluate(batch, sums));
    tally.weight += batch.valid();
  }
  Evaluation evaluation;
  std::array<double, kMostTallied> elements;
  LOCKSTEP_RETURN_IF_ERROR(AddUp(tally, sums, elements.data(), 0,
                                 "an evaluation", evaluation.means));
  evaluation.samples = tally.weight;
  reports_->EndEvaluation(NameOf(loader), steps_, evaluation.samples,
                          evaluation.means);
  const absl::Status hook = CallHooks("evaluation", [&](SessionHooks& hooks) {
    return hooks.OnEvaluation(*this, evaluation);
  });
  Fail(hook);
  LOCKSTEP_RETURN_IF_ERROR(hook);
  return evaluation;
}

}  // namespace lockstep
