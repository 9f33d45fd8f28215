#include "lockstep/session/session.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/end_process.h"
#include "lockstep/base/notifier.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/loader.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/phase.h"
#include "lockstep/session/ranks.h"
#include "lockstep/session/reports.h"
#include "lockstep/session/step_loop.h"
#include "lockstep/session/training.h"

namespace lockstep {

using internal_session::Call;
using internal_session::Phase;
using internal_session::Training;

namespace {

// The number of operations that a rank logs after a failure.
constexpr int64_t kToldLast = 8;

// Returns the name of a section of a model.
std::string SectionOf(int64_t model, absl::string_view kind,
                      absl::string_view name) {
  return model == 0 ? absl::StrCat(kind, "/", name)
                    : absl::StrCat(kind, ".", model, "/", name);
}

// Returns the section of a loss scale.
CheckpointState StateOf(Gradients& gradients) {
  CheckpointState state;
  state.may_be_missing = true;  // the job may have begun without one
  state.save = [&gradients]() -> absl::StatusOr<std::optional<std::string>> {
    const LossScaleState& now = gradients.loss_scale_state();
    return absl::StrFormat("%.17g %d", now.scale, now.good_steps);
  };
  state.load = [&gradients](absl::string_view bytes) -> absl::Status {
    const std::pair<absl::string_view, absl::string_view> words =
        absl::StrSplit(bytes, absl::MaxSplits(' ', 1));
    LossScaleState saved;
    if (!absl::SimpleAtod(words.first, &saved.scale) ||
        !absl::SimpleAtoi(words.second, &saved.good_steps)) {
      return absl::InvalidArgumentError(
          "the section of the loss scale is not one");
    }
    return gradients.RestoreLossScale(saved);
  };
  return state;
}

}  // namespace

// ---- Joining and parting.

Session::Session() = default;

Session::~Session() {
  if (training_ == nullptr) return;  // memory ran out in Create
  training_->notifier->Flush(internal_base::kLastPatience);
}

absl::StatusOr<std::unique_ptr<Session>> Session::Create(
    Job job, PluginRegistry& registry, const SessionOptions& options) {
  return CatchAll("a session that begins",
                  [&]() -> absl::StatusOr<std::unique_ptr<Session>> {
                    std::unique_ptr<Session> session(new Session());
                    session->training_ = std::make_unique<Training>(
                        *session, std::move(job), registry, options);
                    LOCKSTEP_RETURN_IF_ERROR(session->Join());
                    return session;
                  });
}

absl::Status Session::Join() {
  Training& training = *training_;
  absl::Status joined =
      CatchAll("a session that begins", [&] { return training.Join(); });
  if (joined.ok()) return joined;
  // The other ranks may wait for this one.
  absl::Status blamed = training.Blamed(joined);
  training.ranks.GiveUp(blamed);
  return blamed;
}

absl::Status Session::Run(const std::function<absl::Status(Session&)>& train) {
  return RunOrEnd("a session", [&] { return RunOnce(train); });
}

absl::Status Session::RunOnce(
    const std::function<absl::Status(Session&)>& train) {
  Training& training = *training_;
  if (training.phases.outer() != Phase::kCreated) {
    return absl::FailedPreconditionError(
        "Run was called twice, or after an error of FindFinished, and a "
        "session runs one training: make another session");
  }
  training.phases.GoTo(Phase::kMaking);
  absl::Status status =
      CatchAll("a session", [&] { return CallTrainer(train); });
  training.phases.GoTo(Phase::kReturned);
  if (!status.ok()) {
    status = training.Blamed(status);
    // The other ranks get this status, and return it, too.
    training.Abort(status);
    const absl::Status hook = training.CallHooks(
        Phase::kOnFailure,
        [&](SessionHooks& hooks) { return hooks.OnFailure(*this, status); });
    if (!hook.ok()) Log(hook.message());
    const absl::Status saved = training.checkpoint->WaitHere();
    if (!saved.ok() && saved != status) Log(saved.message());
  }
  status.Update(training.CallHooks(
      Phase::kOnShutdown,
      [&](SessionHooks& hooks) { return hooks.OnShutdown(*this); }));
  training.reports->End();
  status = LeaveRanks(std::move(status));
  if (status.ok()) Finish();
  training.notifier->Flush(training.options.log_patience);
  return status;
}

// Returns the status with the blame on which all ranks agree.
absl::Status Session::LeaveRanks(absl::Status status) {
  const absl::Status closed = training_->ranks.Close();
  status.Update(closed);
  // The trainer may have made a status of its own from a failure of the group,
  // and another rank may have failed at the same time.
  const std::optional<Blame> first = BlameOf(closed);
  if (!first.has_value()) return status;
  // The last operations show where this rank was. If a rank failed by itself,
  // its error says more.
  if (first->cause != Blame::Cause::kFailed) TellLastOperations();
  return WithBlame(std::move(status), *first);
}

void Session::TellLastOperations() const {
  const internal_session::Ranks& ranks = training_->ranks;
  const auto tell = [this](const Communicator& group) {
    Log(absl::StrCat("the last operations of rank ", group.rank(),
                     " in group '", group.name(), "':"));
    for (const OperationRecord& record : group.RecentOperations(kToldLast)) {
      Log(absl::StrCat("  ", record.Describe()));
    }
  };
  tell(ranks.group());
  if (ranks.has_host_group()) tell(ranks.host_group());
  for (const auto& each : training_->gradients) {
    for (const Communicator* const group : each->groups()) tell(*group);
  }
}

absl::StatusOr<std::optional<int64_t>> Session::FindFinished() {
  Training& training = *training_;
  if (training.phases.outer() != Phase::kCreated) {
    return absl::FailedPreconditionError(
        "FindFinished comes after Run: call it before, and call Run only if "
        "it returns nullopt");
  }
  absl::StatusOr<std::optional<int64_t>> finished =
      training.checkpoint->FindFinished();
  if (finished.ok()) return finished;
  training.phases.GoTo(Phase::kReturned);
  const absl::Status blamed = training.Blamed(finished.status());
  training.Abort(blamed);
  return LeaveRanks(blamed);
}

absl::Status Session::CallTrainer(
    const std::function<absl::Status(Session&)>& train) {
  Training& training = *training_;
  LOCKSTEP_RETURN_IF_ERROR(training.reports->Begin(
      training.registry, training.InThisSession(PluginContext())));
  if (rank() == 0 && training.job.gradients.exact) {
    Log(absl::StrCat("gradients are exact: each step has ",
                     training.job.gradients.shards,
                     " shards, on any number of ranks"));
  }
  LOCKSTEP_RETURN_IF_ERROR(training.CallHooks(
      Phase::kOnStart,
      [&](SessionHooks& hooks) { return hooks.OnStart(*this); }));
  absl::Status status = CatchAll("the trainer", [&] { return train(*this); });
  // After a failure, those of groups that the trainer uses follow from it.
  if (!training.failure.ok() && BlameOf(status).has_value()) {
    status = training.failure;
  }
  // The trainer may have left a loop without checking the status of the last
  // step.
  if (status.ok() || (training.stopping && absl::IsCancelled(status))) {
    status = training.failure;
    if (status.ok()) status = CheckAllIsSaved();
  }
  for (const auto& each : training.gradients) {
    if (status.ok()) status = each->Await();
  }
  if (!status.ok()) return status;
  training.phases.GoTo(Phase::kReturned);
  if (rank() == 0 && training.has_looped && !training.IsOver() &&
      training.steps == training.began_at) {
    Log(absl::StrCat("nothing was trained: ", training.why_no_steps.empty()
                                                  ? "no loop had a step"
                                                  : training.why_no_steps));
  }
  if (size() > 1) {
    // No rank may leave while another one still trains. Another rank may work
    // for any time after its last step, so there is no deadline.
    CallOptions options;
    options.name = "the end of the training";
    options.deadline = absl::InfiniteDuration();
    LOCKSTEP_RETURN_IF_ERROR(Wait(host_group().Barrier(options)));
  }
  return training.checkpoint->Wait();
}

// If the training has finished, logs this and marks the job as finished. A
// program that has no loop, such as one that only evaluates, has not trained.
// An epoch without a step is a mistake, such as a batch that is larger than the
// dataset on so many ranks.
void Session::Finish() {
  Training& training = *training_;
  if (training.stopping || !training.has_looped || training.had_empty_epoch) {
    return;
  }
  const bool has_path = !training.job.checkpoint.path.empty();
  if (rank() == 0 && training.job.progress.every > absl::ZeroDuration()) {
    Log(absl::StrCat("the training has finished after ", training.steps,
                     training.steps == 1 ? " step" : " steps",
                     has_path ? "; " : "",
                     has_path ? training.LastCheckpoint() : ""));
  }
  if (training.saved_steps != training.steps) return;
  const absl::Status marked = training.checkpoint->MarkFinished();
  // The training is complete without it.
  if (marked.ok()) return;
  Log(
      absl::StrCat("the job has finished, but can't be marked as finished, so "
                   "another start of it would call the trainer again: ",
                   marked.message()));
}

// Returns an error if the trainer has left a loop, and a step or an update of
// the step that was left is not saved.
absl::Status Session::CheckAllIsSaved() const {
  const Training& training = *training_;
  if (training.phases.outer() != Phase::kLeft ||
      training.job.checkpoint.path.empty()) {
    return absl::OkStatus();
  }
  if (training.steps == training.saved_steps && !training.left_update) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the trainer has left the loop over steps in step ", training.steps + 1,
      " and returned OK, and ", training.LastCheckpoint(),
      ": let the loop end by itself; to end the training, call "
      "session.FinishAfterThisStep() in the step that shall be the last one, "
      "and continue the loop"));
}

const Job& Session::job() const { return training_->job; }
PluginRegistry& Session::registry() const { return training_->registry; }
const SessionOptions& Session::options() const { return training_->options; }
World* Session::world() const { return training_->ranks.world(); }
Communicator& Session::group() const { return training_->ranks.group(); }
Communicator& Session::host_group() const {
  return training_->ranks.host_group();
}
int64_t Session::steps() const { return training_->steps; }
bool Session::has_begun() const { return training_->has_begun; }
bool Session::stop_requested() const { return training_->stop_requested(); }
bool Session::finishing() const { return training_->finishing; }
bool Session::stopping() const { return training_->stopping; }
void Session::RequestStop() { training_->RequestStop(); }
void Session::FinishAfterThisStep() { training_->finish_requested = true; }

void Session::Log(absl::string_view text) const {
  absl::ConsumeSuffix(&text, "\n");
  training_->Log(text);
}

void Session::WriteMetrics(absl::Span<const Metric> metrics) {
  if (training_->phases.in_step()) {
    training_->reports->AddToStep(metrics);
  } else {
    training_->reports->Write(training_->steps, metrics);
  }
}

// ---- What a trainer makes.

absl::StatusOr<Loader*> Session::MakeLoader(absl::string_view name,
                                            PluginContext context) {
  Training& training = *training_;
  LOCKSTEP_RETURN_IF_ERROR(training.Check(Call::kMakeLoader, "MakeLoader"));
  const std::string key(name);
  if (training.loaders.Has(key)) {
    return absl::AlreadyExistsError(
        absl::StrCat("the loader '", name,
                     "' was made before: make it once, and keep the pointer"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<Loader> loader,
      training.job.MakeLoader(training.registry, name,
                              training.InThisSession(std::move(context))));
  LOCKSTEP_RETURN_IF_ERROR(training.CheckShards(*loader));
  training.reports->KeepEventsOf(*loader);
  loader->GiveUpWhen([&training](absl::Duration waited) {
    return training.IsStopOver(waited);
  });
  Loader& made = training.loaders.Add(key, std::move(loader));
  if (!training.checkpoint->has_restored()) {
    LOCKSTEP_RETURN_IF_ERROR(
        training.loaders.AddTo(*training.checkpoint, made));
  }
  if (rank() == 0) {
    for (const std::string& text :
         {made.dataset().Describe(), made.order().Explain()}) {
      if (text.empty()) continue;
      Log(absl::StrCat("the loader '", name, "' has ", text));
    }
  }
  if (made.available_workers() < *made.options().num_workers) {
    Log(absl::StrCat("rank ", rank(), ": the loader '", name, "' has ",
                     made.available_workers(), " of ",
                     *made.options().num_workers,
                     " workers: raise the limit of threads (ulimit -u), of "
                     "memory (ulimit -v) or of oneTBB, or lower num_workers"));
  }
  return &made;
}

absl::Status Session::CheckMake(absl::string_view name) const {
  return training_->Check(Call::kMakeGradients, name);
}

Checkpoint& Session::checkpoint() { return *training_->checkpoint; }

absl::StatusOr<Gradients*> Session::MakeGradients(
    std::vector<Parameter> parameters, GradientsOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckMake("MakeGradients"));
  Training& training = *training_;
  const int64_t shards = training.job.gradients.CountShards();
  if (options.shards != 0 && options.shards != shards) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a session takes the number of shards from its job, ",
        shards == 0 ? std::string("whose gradients are not exact")
                    : absl::StrCat("which has gradients.shards=", shards),
        ", but got GradientsOptions::shards=", options.shards,
        ": leave that out, and set gradients.exact and gradients.shards in the "
        "job's text"));
  }
  options.shards = shards;
  const auto number = static_cast<int64_t>(training.gradients.size());
  const std::string loss_scale = SectionOf(number, "gradients", "loss_scale");
  if (options.loss_scale.has_value()) {
    LOCKSTEP_RETURN_IF_ERROR(training.checkpoint->CheckAdd(loss_scale));
  }
  bool is_on_host = true;
  for (const Parameter& parameter : parameters) {
    is_on_host &= parameter.values.device.kind == Device::Kind::kHost;
    LOCKSTEP_RETURN_IF_ERROR(training.checkpoint->CheckAdd(
        SectionOf(number, "parameters", parameter.name)));
  }
  if (!is_on_host && !training.ranks.has_host_group()) {
    return absl::UnimplementedError(absl::StrCat(
        "gradients on a device need a group that moves its memory, which '",
        group().name(), "' does not: set group.name = \"nccl\" in the job"));
  }
  options.host_group = &host_group();
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<Gradients> gradients,
      Gradients::Create(is_on_host ? host_group() : group(),
                        std::move(parameters), options));
  training.gradients.push_back(std::move(gradients));
  if (shards > 0) training.watches.emplace_back();
  if (!training.gradients.back()->overlap().is_final) {
    training.undecided.push_back(training.gradients.back().get());
  }
  training.Follow(*training.gradients.back());
  Gradients& made = *training.gradients.back();
  const absl::Status sharing = made.sharing();
  if (rank() == 0 && !sharing.ok() && !absl::IsUnimplemented(sharing)) {
    Log(
        absl::StrCat("the ranks can't share the memory of gradients, so each "
                     "step copies them: ",
                     sharing.message()));
  }
  LOCKSTEP_RETURN_IF_ERROR(AddToCheckpoint(number, made));
  if (options.loss_scale.has_value()) {
    LOCKSTEP_RETURN_IF_ERROR(
        training.checkpoint->Add(loss_scale, StateOf(made)));
  }
  return &made;
}

absl::Status Session::AddToCheckpoint(int64_t number, Gradients& gradients) {
  for (size_t i = 0; i < gradients.views().size(); ++i) {
    const GradientView& view = gradients.views()[i];
    const std::string name = SectionOf(number, "parameters", view.name);
    if (view.values.device.kind == Device::Kind::kHost) {
      LOCKSTEP_RETURN_IF_ERROR(training_->checkpoint->Add(name, view.values));
      continue;
    }
    CheckpointMemory memory;
    memory.dtype = view.values.dtype;
    memory.count = view.values.count;
    memory.read = [&gradients, i](int64_t offset, absl::Span<char> to) {
      return gradients.ReadValues(static_cast<int64_t>(i), offset, to);
    };
    memory.write = [&gradients, i](int64_t offset, absl::string_view from) {
      return gradients.WriteValues(static_cast<int64_t>(i), offset, from);
    };
    LOCKSTEP_RETURN_IF_ERROR(
        training_->checkpoint->Add(name, std::move(memory)));
  }
  return absl::OkStatus();
}

absl::Status Session::AddState(absl::string_view name, Buffer values) {
  LOCKSTEP_RETURN_IF_ERROR(CheckMake("AddState"));
  return training_->checkpoint->Add(name, values);
}

absl::Status Session::AddState(absl::string_view name,
                               CheckpointMemory values) {
  LOCKSTEP_RETURN_IF_ERROR(CheckMake("AddState"));
  return training_->checkpoint->Add(name, std::move(values));
}

absl::Status Session::AddState(absl::string_view name, CheckpointState state) {
  LOCKSTEP_RETURN_IF_ERROR(CheckMake("AddState"));
  return training_->checkpoint->Add(name, std::move(state));
}

absl::Status Session::AddPart(absl::string_view name, Buffer part) {
  LOCKSTEP_RETURN_IF_ERROR(CheckMake("AddPart"));
  return training_->checkpoint->AddPart(name, part);
}

absl::StatusOr<WarmStart> Session::RestoreFrom(
    const std::string& path, const WarmStartOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckMake("RestoreFrom"));
  return training_->checkpoint->RestoreFrom(
      path, options,
      {std::begin(internal_session::kLoaderSections),
       std::end(internal_session::kLoaderSections)});
}

// ---- Checkpoints.

absl::Status Session::Restore() {
  Training& training = *training_;
  LOCKSTEP_RETURN_IF_ERROR(training.Check(Call::kRestore, "Restore"));
  const absl::StatusOr<std::optional<int64_t>> found = training.Restore();
  training.restored = found.status();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> restored, found);
  training.phases.GoTo(Phase::kBetween);
  if (restored.has_value()) {
    training.steps = training.began_at = training.saved_steps = *restored;
  }
  LOCKSTEP_RETURN_IF_ERROR(
      training.loaders.EndRestore([&](absl::string_view text) {
        if (rank() == 0) Log(text);
      }));
  const int64_t stop_after = training.options.stop_after;
  if (stop_after > 0 && training.steps >= stop_after) training.stopping = true;
  training.reports->GoOnAfter(training.steps);
  if (!restored.has_value()) return absl::OkStatus();
  return training.CallHooks(Phase::kOnCheckpointLoad, [&](SessionHooks& hooks) {
    return hooks.OnCheckpointLoad(*this);
  });
}

absl::Status Session::Save() {
  Training& training = *training_;
  LOCKSTEP_RETURN_IF_ERROR(training.Check(Call::kSave, "Save"));
  training.TellNoPath();
  if (training.phases.is_step_open()) {
    // The session can't know whether the trainer has already updated its
    // parameters, and other hooks may follow.
    training.save_requested = true;
    return absl::OkStatus();
  }
  if (!training.phases.in_function()) {
    // The code that follows the steps may have done its part, although the
    // epoch has not ended.
    if (training.stopping) return Training::StopsError();
    if (training.IsOver() && training.loaders.IsInOpenEpoch()) {
      if (rank() == 0 && !training.job.checkpoint.path.empty()) {
        Log(
            absl::StrCat("Save was called in the middle of an epoch, after the "
                         "training had finished, and saved nothing: ",
                         training.LastCheckpoint()));
      }
      return absl::OkStatus();
    }
    training.loaders.MarkDone();
  }
  return training.Save(/*is_numbered=*/true);
}

absl::Status Session::SaveAs(absl::string_view name) {
  Training& training = *training_;
  LOCKSTEP_RETURN_IF_ERROR(training.CheckSaveAs("SaveAs"));
  LOCKSTEP_RETURN_IF_ERROR(Checkpoint::CheckName(name));
  return training.SaveAs({std::string(name), std::nullopt});
}

absl::StatusOr<bool> Session::SaveIfBest(absl::string_view name, double value,
                                         Best best) {
  Training& training = *training_;
  LOCKSTEP_RETURN_IF_ERROR(training.CheckSaveAs("SaveIfBest"));
  LOCKSTEP_ASSIGN_OR_RETURN(const bool is_best,
                            training.checkpoint->NoteValue(name, value, best));
  LOCKSTEP_RETURN_IF_ERROR(
      training.SaveAs({std::string(name), BestValue{value, best}}));
  return is_best;
}

absl::Status Session::AwaitSaved() {
  LOCKSTEP_RETURN_IF_ERROR(training_->Check(Call::kAwaitSaved, "AwaitSaved"));
  return training_->checkpoint->Wait();
}

// ---- Loops.

EpochNumbers Session::Epochs(const Loader& loader, int64_t epochs) {
  Training& training = *training_;
  const absl::Status allowed = training.CheckLoop("Epochs");
  if (!allowed.ok()) {
    training.Fail(allowed);
    return {training, loader, 0, 0};
  }
  const int64_t epoch = loader.progress().epoch;
  const int64_t first = training.loaders.FirstEpoch(loader);
  // Such a loader goes through all epochs in one range of steps.
  if (loader.options().advance_epochs) {
    if (first > epoch) {
      training.why_no_steps = absl::StrCat(training.loaders.Describe(loader),
                                           " has done all of its epochs");
    }
    return {training, loader, first, epoch + 1};
  }
  if (first >= epochs) {
    training.why_no_steps =
        absl::StrCat("Epochs was asked for ", epochs, " epochs, and ",
                     training.loaders.Describe(loader), " is ",
                     first > epoch ? "at the end of" : "in", " epoch ", epoch,
                     ", counted from 0");
    if (training.loaders.IsRestored(loader) && rank() == 0) {
      Log(absl::StrCat("no epoch is left: the checkpoint is ",
                       first > epoch ? "at the end of" : "in", " epoch ", epoch,
                       ", counted from 0, and the trainer wants ", epochs));
    }
  }
  return {training, loader, first, epochs};
}

StepRange Session::Steps(Loader& loader, int64_t epoch) {
  return StepRange(
      std::make_unique<internal_session::StepLoop>(*training_, loader, epoch));
}

StepRange Session::Steps(Loader& loader, const StepsOptions& options) {
  return StepRange(std::make_unique<internal_session::StepLoop>(
      *training_, loader, options));
}

absl::StatusOr<Evaluation> Session::Evaluate(
    Loader& loader,
    const std::function<absl::Status(const Batch& batch, Sums& sums)>&
        evaluate) {
  return internal_session::Evaluate(*training_, loader, evaluate);
}

}  // namespace lockstep
