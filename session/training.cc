#include "lockstep/session/training.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/config.h"
#include "lockstep/base/in_part.h"
#include "lockstep/base/notifier.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/sample_error.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/session/console.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/phase.h"
#include "lockstep/session/session_options.h"
#include "lockstep/session/shard_sums.h"
#include "lockstep/session/sums.h"

namespace lockstep::internal_session {
namespace {

// A step has at most this number of sums, each of which may have a weight.
constexpr int64_t kMostSums = 1000;

absl::Status CheckSums(const Sums& sums, absl::string_view what) {
  LOCKSTEP_RETURN_IF_ERROR(sums.status());
  if (sums.values().size() <= kMostSums) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", sums.values().size(), " sums; accepted are ",
                   kMostSums, " at most"));
}

// Divides the sums by their weights, which are in the order of those sums that
// have one. All others get the weight of the step.
void Divide(const Sums& sums, int64_t weight, Means& means) {
  const std::vector<double> own = means.weights;
  size_t next = 0;
  means.weights.clear();
  for (size_t i = 0; i < means.values.size(); ++i) {
    const double by = sums.weights()[i].has_value()
                          ? own[next++]
                          : static_cast<double>(weight);
    means.weights.push_back(by);
    // A mean over nothing is NaN, so that nobody takes it for a good one.
    means.values[i].value = by > 0 ? means.values[i].value / by : NAN;
  }
}

// Returns the name of the event of a hook, as messages show it.
const char* EventOf(Phase phase) {
  switch (phase) {
    case Phase::kOnStart:
      return "start";
    case Phase::kOnEpochBegin:
      return "epoch begin";
    case Phase::kOnBatch:
      return "batch";
    case Phase::kOnStep:
      return "step";
    case Phase::kOnEpochEnd:
      return "epoch end";
    case Phase::kOnEvaluation:
      return "evaluation";
    case Phase::kOnCheckpointSave:
      return "checkpoint save";
    case Phase::kOnCheckpointLoad:
      return "checkpoint load";
    case Phase::kOnFailure:
      return "failure";
    default:
      return "shutdown";
  }
}

}  // namespace

Training::Training(Session& session, Job job, PluginRegistry& registry,
                   const SessionOptions& options)
    : session(session),
      job(std::move(job)),
      registry(registry),
      options(options),
      notifier(options.log
                   ? std::make_shared<internal_base::Notifier>(options.log)
                   : StandardErrorNotifier()),
      loaders(this->job.checkpoint.path) {}

absl::Status Training::Join() {
  LOCKSTEP_RETURN_IF_ERROR(ranks.Join(
      job, registry, options.world, options.group, options.host_group,
      [this](absl::string_view text) { Log(text); }));
  LOCKSTEP_RETURN_IF_ERROR(CheckExact());
  const auto log = [this](absl::string_view text) { Log(text); };
  checkpoint.emplace(ranks.host_group(), job.checkpoint, log);
  checkpoint->set_job(job.fingerprint);
  LOCKSTEP_RETURN_IF_ERROR(loaders.AddTo(*checkpoint));
  Progress::Output bar;
  if (notifier->has_bar()) {
    bar = [this](absl::string_view text) { notifier->ShowBar(text); };
  }
  reports.emplace(job, ranks.world(), ranks.group(), ranks.host_group(), log,
                  std::move(bar));
  return absl::OkStatus();
}

// Returns INVALID_ARGUMENT if gradients can't be exact on these ranks.
absl::Status Training::CheckExact() const {
  if (!job.gradients.exact) return absl::OkStatus();
  absl::Status valid = Validate(job.gradients);
  if (valid.ok() && job.gradients.shards < ranks.size()) {
    valid = absl::InvalidArgumentError(
        absl::StrCat("there should be at least as many shards as ranks, ",
                     ranks.size(), ", but got shards=", job.gradients.shards,
                     ": use fewer ranks, or set more shards for a new job"));
  }
  return valid.ok() ? valid : Annotate(valid, "gradients");
}

PluginContext Training::InThisSession(PluginContext context) const {
  context.rank = ranks.rank();
  context.world_size = ranks.size();
  context.world = ranks.world();
  context.group = &ranks.group();
  if (context.tell == nullptr && ranks.rank() == 0) {
    context.tell = [this](absl::string_view text) { Log(text); };
  }
  return context;
}

// ---- Calls of the user.

absl::Status Training::Check(Call call, absl::string_view name) const {
  LOCKSTEP_RETURN_IF_ERROR(failure);
  return phases.Check(call, name);
}

absl::Status Training::CheckLoop(absl::string_view name) {
  LOCKSTEP_RETURN_IF_ERROR(Check(Call::kSteps, name));
  has_looped = true;
  if (phases.now() != Phase::kMaking) return absl::OkStatus();
  if (!job.checkpoint.path.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(restored);
    return absl::FailedPreconditionError(absl::StrCat(
        "the job keeps checkpoints at ", job.checkpoint.path,
        ", and the trainer has not looked for one: call session.Restore() when "
        "all is made, before Epochs and Steps"));
  }
  LOCKSTEP_RETURN_IF_ERROR(Restore().status());
  phases.GoTo(Phase::kBetween);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int64_t>> Training::Restore() {
  LOCKSTEP_RETURN_IF_ERROR(
      CheckSame(ranks.host_group(), "the data", loaders.Data()));
  return checkpoint->Restore();
}

absl::Status Training::CallHooks(
    Phase phase, const std::function<absl::Status(SessionHooks&)>& call) {
  const Phases::Within within(phases, phase);
  for (SessionHooks* const hooks : options.hooks) {
    const absl::Status status =
        CatchAll("a hook", [&] { return call(*hooks); });
    if (status.ok()) continue;
    absl::Status named = Annotate(
        status, absl::StrCat("the hook of the event '", EventOf(phase), "'"));
    Fail(named);
    return named;
  }
  return absl::OkStatus();
}

absl::Status Training::Blamed(const absl::Status& error) const {
  std::optional<Blame> known = BlameOf(error);
  if (known.has_value()) {
    // Ranks that share an error are at the same point: if this rank has not
    // begun, the rank that failed has not begun, either.
    if (known->cause == Blame::Cause::kFailed && !has_begun) {
      known->has_begun = false;
    }
    return WithBlame(error, *known);
  }
  Blame blame;
  blame.cause = Blame::Cause::kFailed;
  blame.code = error.code();
  blame.has_begun = has_begun;
  if (ranks.world() != nullptr) {
    blame.ranks = {ThisProcess(ranks.world()->rank())};
  }
  return WithBlame(error, blame);
}

void Training::Log(absl::string_view text) const { notifier->WriteLine(text); }

// ---- The end.

void Training::RequestStop() {
  SteadyTime::rep never = kNever;
  stop_requested_at_.compare_exchange_strong(
      never, SteadyNow().time_since_epoch().count());
}

bool Training::IsStopOver(absl::Duration waited) const {
  const SteadyTime::rep asked = stop_requested_at_;
  return asked != kNever && waited >= job.stop.patience &&
         Passed(SteadyTime(SteadyTime::duration(asked)), job.stop.patience,
                SteadyNow());
}

std::string Training::LastCheckpoint() const {
  if (saved_steps < 0) return "there is no checkpoint";
  return absl::StrCat("the last checkpoint is after ", saved_steps, " steps");
}

absl::Status Training::StopsError() {
  return absl::CancelledError("the training stops, as was asked");
}

// ---- Shared functions.

absl::Status Training::InLoader(const Loader& loader, NextKind kind,
                                const absl::Status& error) const {
  const std::string* const name = loaders.FindName(loader);
  absl::Status named =
      name == nullptr ? error
                      : internal_base::InPart(
                            error, absl::StrCat("loader.", *name), Config());
  if (!absl::IsCancelled(error)) return named;
  // In a session, this code means that the training stops.
  if (kind != NextKind::kTryAgain) {
    return InPlaceOf(named, absl::UnknownError(
                                absl::StrCat(named.message(), " (CANCELLED)")));
  }
  if (!stop_requested()) return named;
  return absl::CancelledError(absl::StrCat(
      "the training was asked to stop, and no data came within stop.patience=",
      absl::FormatDuration(job.stop.patience), ", so nothing was saved now; ",
      LastCheckpoint(),
      ": start the job again, and raise stop.patience if data is only slow; ",
      named.message()));
}

void Training::AddUnread(const Loader& loader, const Batch& batch,
                         int64_t& unread) const {
  const auto tell = [&](int64_t index, const absl::Status& why,
                        absl::string_view what) {
    if (unread++ > 0) return;
    Log(absl::StrCat("rank ", ranks.rank(), ": ", loaders.Describe(loader),
                     " could not read sample ", index, ", and ", what, ": ",
                     why.message(),
                     "; more such samples are counted, and told at the end"));
  };
  for (const SampleError& error : batch.errors()) {
    tell(error.index, error.status, "left it out");
  }
  for (const Substitution& other : batch.substitutions()) {
    tell(other.wanted, other.why, "read another one in its place");
  }
}

void Training::TellUnread(const Loader& loader, int64_t& unread) const {
  if (unread > 1) {
    Log(absl::StrCat("rank ", ranks.rank(), ": ", loaders.Describe(loader),
                     " could not read ", unread,
                     " samples until here, which on_error leaves out or "
                     "replaces"));
  }
  unread = 0;
}

ShardRange Training::shards() const {
  if (!job.gradients.exact) return {};
  CutOptions cut;
  cut.shards = job.gradients.shards;
  cut.world = ranks.size();
  return ShardsOf(cut, ranks.rank());
}

absl::Status Training::CheckShards(const Loader& loader) const {
  if (!job.gradients.exact) return absl::OkStatus();
  const SamplerOptions& sampler = loader.sampler_options();
  if (sampler.cut.shards == job.gradients.shards &&
      sampler.cut.world == ranks.size() && sampler.rank == ranks.rank() &&
      sampler.replicas == 1) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "with gradients.exact, each step is cut into shards=",
      job.gradients.shards, " for ", ranks.size(),
      ranks.size() == 1 ? " rank" : " ranks", ", and this is rank ",
      ranks.rank(), ", but ", loaders.Describe(loader),
      " has a sampler with shards=", sampler.cut.shards,
      ", world=", sampler.cut.world, ", rank=", sampler.rank,
      ", replicas=", sampler.replicas,
      ": let MakeLoader make the loader, without replicas, or give its sampler "
      "these numbers (CutOptions, SamplerOptions)"));
}

absl::Status Training::AddUp(int64_t& weight, const WeightSources& sources,
                             const ShardSums& by_shard, absl::string_view what,
                             Gradients* averaged, Means& means) {
  const Sums& sums = by_shard.part();
  LOCKSTEP_RETURN_IF_ERROR(CheckSums(sums, what));
  means.values.assign(sums.values().begin(), sums.values().end());
  // The elements of each shard are three numbers of the rank, which come with
  // its first shard, the sums, and the weights of those sums that have one.
  enum : size_t { kFinishes, kCalls, kRows, kFirstSum };
  elements_ = {finish_requested ? 1.0 : 0.0, sources.calls ? 1.0 : 0.0,
               sources.rows ? 1.0 : 0.0};
  for (int64_t i = 0; i < by_shard.shards(); ++i) {
    if (i > 0) elements_.resize(elements_.size() + kFirstSum);
    by_shard.AppendTo(i, elements_);
  }
  const size_t count = elements_.size() / by_shard.shards();
  StepInput input;
  input.weight = weight;
  input.stop = stop_requested();
  input.sums = absl::MakeSpan(elements_);
  input.step = std::string(what);
  input.sum_names = sums.Describe();
  // All of this happens in the group of gradients if there are any. So ranks of
  // which one averages and another does not are told that they differ.
  const absl::StatusOr<StepResult> added =
      averaged != nullptr ? averaged->Average(input)
      : gradients.empty()
          ? AddUpStep(ranks.host_group(), input, job.gradients.CountShards())
          : gradients[0]->AddUp(input);
  if (absl::IsFailedPrecondition(added.status()) &&
      absl::StrContains(added.status().message(), " differ at operation ")) {
    return Annotate(
        added.status(), "",
        "; all ranks must be in the same step, average the same gradients, "
        "and add the same sums (Step::Add, Sums::Add) in the same order");
  }
  LOCKSTEP_RETURN_IF_ERROR(added.status());
  if (elements_[kCalls] > 0 && elements_[kRows] > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "in ", what,
        ", AddWeight was called for some batches that have rows and not for "
        "others, so the step's weight would count different things: call it "
        "for each batch, also with 0"));
  }
  auto next = elements_.begin() + kFirstSum;
  for (Metric& sum : means.values) sum.value = *next++;
  means.weights.assign(next, elements_.begin() + count);
  weight = added->weight;
  Divide(sums, weight, means);
  Agree(added->stops, static_cast<int64_t>(elements_[kFinishes]));
  return absl::OkStatus();
}

void Training::Follow(const Gradients& followed) {
  for (const Communicator* const group : followed.groups()) {
    reports->Watch(*group);
  }
  const auto found = std::find(undecided.begin(), undecided.end(), &followed);
  const OverlapDecision& decision = followed.overlap();
  if (found == undecided.end() || !decision.is_final) return;
  undecided.erase(found);
  if (ranks.rank() > 0) return;
  Log(absl::StrCat("the gradients '", followed.groups()[0]->name(), "' travel ",
                   decision.on ? "while the trainer computes others"
                               : "in Average, without overlap",
                   ": ", decision.why));
}

void Training::Abort(const absl::Status& why) {
  ranks.Abort(why);
  for (const auto& each : gradients) each->Abort(why);
}

// Notes the requests that have come from any rank.
void Training::Agree(int64_t stops, int64_t finishes) {
  finishing = finishing || finishes > 0;
  if (stops == 0 || stopping) return;
  stopping = true;
  if (ranks.rank() > 0) return;
  Log(absl::StrCat("the training stops after step ",
                   steps + (phases.in_step() ? 1 : 0), ", as was asked on ",
                   stops, " of ", ranks.size(), " ranks"));
}

// ---- Checkpoints.

absl::Status Training::Save(bool is_numbered) {
  std::vector<CheckpointTarget> targets = std::exchange(named_saves, {});
  const bool has_path = !job.checkpoint.path.empty();
  if (is_numbered) {
    save_requested = false;
    // It comes last. If the process ends before, the step is repeated, and so
    // are its saves by name.
    targets.emplace_back();
    if (has_path) LOCKSTEP_RETURN_IF_ERROR(loaders.CheckAllAreSaved());
  }
  targets.erase(std::remove_if(targets.begin(), targets.end(),
                               [&](const CheckpointTarget& target) {
                                 return !checkpoint->WouldSave(target);
                               }),
                targets.end());
  if (targets.empty()) return absl::OkStatus();
  if (has_path) {
    reports->Flush();
    LOCKSTEP_RETURN_IF_ERROR(CallHooks(
        Phase::kOnCheckpointSave,
        [&](SessionHooks& hooks) { return hooks.OnCheckpointSave(session); }));
  }
  LOCKSTEP_RETURN_IF_ERROR(checkpoint->SaveTo(steps, targets));
  if (is_numbered && has_path) saved_steps = steps;
  return absl::OkStatus();
}

void Training::TellNoPath() {
  if (!job.checkpoint.path.empty() || ranks.rank() > 0 ||
      std::exchange(logged_no_path, true)) {
    return;
  }
  Log("nothing is saved, because the job has no checkpoint.path");
}

absl::Status Training::CheckSaveAs(absl::string_view name) const {
  LOCKSTEP_RETURN_IF_ERROR(Check(Call::kSaveAs, name));
  // The code that follows the steps is repeated after the restart.
  return stopping && !phases.is_step_open() && !phases.in_function()
             ? StopsError()
             : absl::OkStatus();
}

absl::Status Training::SaveAs(CheckpointTarget target) {
  TellNoPath();
  const auto same = std::find_if(
      named_saves.begin(), named_saves.end(),
      [&](const CheckpointTarget& each) { return each.name == target.name; });
  if (same == named_saves.end()) {
    named_saves.push_back(std::move(target));
  } else if (!same->best.has_value() || !target.best.has_value() ||
             IsBetter(*target.best, *same->best)) {
    *same = std::move(target);
  }
  return phases.is_step_open() ? absl::OkStatus() : Save(/*is_numbered=*/false);
}

}  // namespace lockstep::internal_session
