#include "lockstep/session/session.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/metrics_sink.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/console.h"
#include "lockstep/session/gradient_memory.h"
#include "lockstep/session/gradients.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/reports.h"
#include "lockstep/session/sums.h"

namespace lockstep {
namespace {

using internal_session::Console;
using internal_session::Reports;

std::function<void(absl::string_view)> LogOr(
    const std::function<void(absl::string_view)>& log,
    const std::shared_ptr<Console>& console) {
  if (log) return log;
  return [console](absl::string_view text) { console->WriteLine(text); };
}

}  // namespace

// ---- Joining and parting.

Session::Session(Job job, PluginRegistry& registry,
                 const SessionOptions& options)
    : job_(std::move(job)),
      registry_(registry),
      hooks_(options.hooks),
      console_(options.log ? nullptr : Console::StandardError()),
      log_(LogOr(options.log, console_)) {}

absl::StatusOr<std::unique_ptr<Session>> Session::Create(
    Job job, PluginRegistry& registry, const SessionOptions& options) {
  std::unique_ptr<Session> session(
      new Session(std::move(job), registry, options));
  LOCKSTEP_RETURN_IF_ERROR(CatchAll("a session that begins",
                                    [&] { return session->Join(options); }));
  session->checkpoint_ = std::make_unique<Checkpoint>(
      *session->host_group_, session->job_.checkpoint, session->log_);
  session->checkpoint_->set_job(session->job_.fingerprint);
  Session* const told = session.get();
  session->reports_ = std::make_unique<Reports>(
      session->job_, *session->group_, *session->host_group_,
      [told](absl::string_view text) { told->Log(text); }, session->console_);
  return session;
}

absl::Status Session::Join(const SessionOptions& options) {
  world_ = options.world;
  group_ = options.group;
  host_group_ = options.host_group;
  if (group_ == nullptr) {
    if (world_ == nullptr) {
      WorldOptions told = job_.world;
      if (!told.on_slow) told.on_slow = log_;
      LOCKSTEP_ASSIGN_OR_RETURN(own_world_, World::FromEnvironment(told));
      world_ = own_world_.get();
    }
    LOCKSTEP_ASSIGN_OR_RETURN(own_group_, job_.MakeGroup(registry_, *world_));
    group_ = own_group_.get();
  }
  if (host_group_ == nullptr) {
    // A group that moves only the memory of devices refuses this on all ranks.
    absl::Status same = CheckSame(*group_, "the job", job_.fingerprint);
    if (!absl::IsUnimplemented(same)) {
      host_group_ = group_;
      return same;
    }
    if (world_ == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("the group '", group_->name(),
                       "' does not move the host's memory, which a session "
                       "needs: give SessionOptions::host_group, too (",
                       same.message(), ")"));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(own_host_group_, MakeHostGroup());
    host_group_ = own_host_group_.get();
  }
  return CheckSame(*host_group_, "the job", job_.fingerprint);
}

absl::StatusOr<std::unique_ptr<Communicator>> Session::MakeHostGroup() {
  Config settings;
  settings.Set("group", absl::StrCat(group_->name(), ", host"));
  for (const char* const key : {"deadline", "slow"}) {
    const Config* const set = job_.group.Find(key);
    if (set != nullptr) settings.Set(key, *set);
  }
  PluginContext context;
  context.world = world_;
  return registry_.Create<Communicator>("auto", context, settings);
}

// The memory of gradients on a device must not be freed while NCCL uses it.
Session::~Session() { on_device_.Wait().IgnoreError(); }

absl::Status Session::Run(const std::function<absl::Status(Session&)>& train) {
  if (ran_) {
    return absl::FailedPreconditionError(
        "a session runs one training, and has run it: make another session");
  }
  ran_ = true;
  absl::Status status =
      CatchAll("a session", [&] { return CallTrainer(train); });
  if (!status.ok()) {
    // The other ranks get this status, and return it, too.
    group_->Abort(status);
    host_group_->Abort(status);
    const absl::Status hook = CallHooks("failure", [&](SessionHooks& hooks) {
      return hooks.OnFailure(*this, status);
    });
    if (!hook.ok()) Log(hook.message());
    const absl::Status saved = checkpoint_->WaitHere();
    if (!saved.ok() && saved != status) Log(saved.message());
  }
  reports_->End();
  status.Update(CallHooks("shutdown", [&](SessionHooks& hooks) {
    return hooks.OnShutdown(*this);
  }));
  status.Update(checkpoint_->WaitHere());  // a hook may have saved one
  if (own_group_ != nullptr) status.Update(own_group_->Close());
  if (own_host_group_ != nullptr) status.Update(own_host_group_->Close());
  return status;
}

absl::Status Session::CallTrainer(
    const std::function<absl::Status(Session&)>& train) {
  LOCKSTEP_RETURN_IF_ERROR(
      reports_->Begin(registry_, InThisSession(PluginContext())));
  LOCKSTEP_RETURN_IF_ERROR(CallHooks(
      "start", [&](SessionHooks& hooks) { return hooks.OnStart(*this); }));
  absl::Status status = CatchAll("the trainer", [&] { return train(*this); });
  // The trainer may have left a loop without checking the status of the last
  // step.
  if (status.ok() || (stopping_ && absl::IsCancelled(status))) {
    status = failure_;
  }
  if (status.ok()) status = on_device_.Wait();
  if (!status.ok()) return status;
  if (stopping_ && left_step_ && !job_.checkpoint.path.empty()) {
    Log(absl::StrCat("the trainer left the loop over steps in step ",
                     steps_ + 1,
                     ", after which it stops, so nothing was saved there: let "
                     "the loop end by itself"));
  }
  if (size() > 1) {
    // No rank may leave while another one still trains.
    CallOptions options;
    options.name = "the end of the training";
    LOCKSTEP_RETURN_IF_ERROR(Wait(host_group_->Barrier(options)));
  }
  return checkpoint_->Wait();
}

absl::Status Session::CallHooks(
    const char* event, const std::function<absl::Status(SessionHooks&)>& call) {
  for (SessionHooks* const hooks : hooks_) {
    const absl::Status status =
        CatchAll("a hook", [&] { return call(*hooks); });
    if (status.ok()) continue;
    return absl::Status(status.code(),
                        absl::StrCat("the hook of the event '", event,
                                     "': ", status.message()));
  }
  return absl::OkStatus();
}

void Session::Fail(const absl::Status& why) { failure_.Update(why); }

void Session::Log(absl::string_view text) const {
  absl::ConsumeSuffix(&text, "\n");
  CatchAll("the log", [&] {
    log_(text);
    return absl::OkStatus();
  }).IgnoreError();
}

void Session::WriteMetrics(absl::Span<const Metric> metrics) {
  if (is_in_step_) {
    reports_->AddToStep(metrics);
  } else {
    reports_->Write(steps_, metrics);
  }
}

// ---- What a trainer makes.

PluginContext Session::InThisSession(PluginContext context) const {
  context.rank = rank();
  context.size = size();
  context.world = world_;
  context.group = group_;
  return context;
}

absl::StatusOr<Loader*> Session::MakeLoader(absl::string_view name,
                                            PluginContext context) {
  const std::string key(name);
  if (loaders_.count(key) > 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("the loader '", name,
                     "' was made before: make it once, and keep the pointer"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<Loader> loader,
      job_.MakeLoader(registry_, name, InThisSession(std::move(context))));
  loader->GiveUpWhen(
      [this](absl::Duration waited) { return IsStopOver(waited); });
  Loader& made = *(loaders_[key] = std::move(loader));
  LOCKSTEP_RETURN_IF_ERROR(AddToCheckpoint(name, made));
  if (made.available_workers() < *made.options().num_workers) {
    Log(absl::StrCat("rank ", rank(), ": the loader '", name, "' has ",
                     made.available_workers(), " of ",
                     *made.options().num_workers,
                     " workers: raise the limit of threads (ulimit -u), of "
                     "memory (ulimit -v) or of oneTBB, or lower num_workers"));
  }
  return &made;
}

absl::StatusOr<Gradients*> Session::MakeGradients(
    std::vector<Parameter> parameters, const GradientOptions& options) {
  if (options.device.kind != Device::Kind::kHost && group_ == host_group_) {
    return absl::UnimplementedError(absl::StrCat(
        "gradients on a device need a group that moves its "
        "memory, which '",
        group_->name(), "' does not: set group.name = \"nccl\" in the job"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Gradients> gradients,
                            Gradients::Create(std::move(parameters), options));
  gradients->number_ = static_cast<int64_t>(gradients_.size());
  gradients_.push_back(std::move(gradients));
  Gradients& made = *gradients_.back();
  LOCKSTEP_RETURN_IF_ERROR(Share(made));
  LOCKSTEP_RETURN_IF_ERROR(AddToCheckpoint(made));
  return &made;
}

absl::Status Session::Share(Gradients& gradients) {
  if (size() > 1) {
    LOCKSTEP_RETURN_IF_ERROR(
        CheckSame(*host_group_, "the parameters", gradients.Layout()));
    LOCKSTEP_RETURN_IF_ERROR(gradients.TakeValues());
    const Buffer buffer = gradients.buffer();
    CallOptions options;
    options.name = "the parameters of rank 0";
    LOCKSTEP_RETURN_IF_ERROR(
        Do(gradients, options,
           [&](Communicator& group, const CallOptions& options) {
             return group.Broadcast(buffer, buffer, /*root=*/0, options);
           }));
    LOCKSTEP_RETURN_IF_ERROR(gradients.PutValues());
  }
  return gradients.SetToZero();
}

absl::Status Session::Do(const Gradients& gradients, CallOptions options,
                         const std::function<absl::StatusOr<Work>(
                             Communicator&, const CallOptions&)>& issue) {
  if (gradients.on_host()) return Wait(issue(*host_group_, options));
  options.stream = gradients.memory_->stream();
  LOCKSTEP_ASSIGN_OR_RETURN(on_device_, issue(*group_, options));
  return on_device_.WaitOnStream(*options.stream);
}

// ---- Checkpoints.

absl::Status Session::AddToCheckpoint(const Gradients& gradients) {
  const std::string begin =
      gradients.number_ == 0
          ? "parameters/"
          : absl::StrCat("parameters.", gradients.number_, "/");
  for (const Parameter& parameter : gradients.parameters()) {
    const std::string name = begin + parameter.name;
    if (gradients.on_host()) {
      LOCKSTEP_RETURN_IF_ERROR(
          checkpoint_->Add(name, BufferOf(parameter.values)));
    } else {
      LOCKSTEP_RETURN_IF_ERROR(
          checkpoint_->Add(name, gradients.MemoryOf(parameter)));
    }
  }
  return absl::OkStatus();
}

absl::Status Session::AddToCheckpoint(absl::string_view name, Loader& loader) {
  if (checkpoint_->has_restored()) return absl::OkStatus();
  saved_loaders_.insert(&loader);
  CheckpointState state;
  // A loader that is only used for evaluations has no position to save.
  state.may_be_missing = true;
  state.save = [this, &loader]() -> absl::StatusOr<std::optional<std::string>> {
    if (stepped_loaders_.count(&loader) == 0) return std::nullopt;
    return loader.SaveState();
  };
  state.load = [this, &loader](absl::string_view bytes) -> absl::Status {
    stepped_loaders_.insert(&loader);
    LOCKSTEP_RETURN_IF_ERROR(loader.RestoreState(bytes));
    restored_epochs_[&loader] = loader.progress().epoch;
    return absl::OkStatus();
  };
  return checkpoint_->Add(absl::StrCat("loader/", name), std::move(state));
}

// Returns OK if checkpoints contain everything that is needed to continue with
// the loader.
absl::Status Session::CheckIsSaved(const Loader& loader) const {
  const std::string& path = job_.checkpoint.path;
  if (path.empty()) return absl::OkStatus();
  if (!checkpoint_->has_restored()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job keeps checkpoints at ", path,
        ", and the trainer has not looked for one: call session.Restore() when "
        "all is made, before Epochs and Steps"));
  }
  if (saved_loaders_.count(&loader) == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job keeps checkpoints at ", path,
        ", and the place of this loader is not in them: make it by "
        "session.MakeLoader, before session.Restore()"));
  }
  if (loader.options().delivery == Delivery::kAsReady) {
    return InLoader(loader,
                    absl::InvalidArgumentError(absl::StrCat(
                        "the job keeps checkpoints at ", path,
                        ", and batches that come as they are ready have no "
                        "place to go on from: set delivery = \"in_order\"")));
  }
  return absl::OkStatus();
}

// Returns OK if Steps continues a restored loader in its own epoch or later.
absl::Status Session::CheckGoesOnIn(const Loader& loader, int64_t epoch) {
  const auto restored = restored_epochs_.find(&loader);
  if (restored == restored_epochs_.end()) return absl::OkStatus();
  if (epoch < restored->second) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint is in epoch ", restored->second,
        " of this loader, and Steps was asked for epoch ", epoch,
        ", whose samples it has had: take epochs from session.Epochs of the "
        "same loader"));
  }
  restored_epochs_.erase(restored);
  return absl::OkStatus();
}

absl::Status Session::Restore() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> restored,
                            checkpoint_->Restore());
  if (restored.has_value()) steps_ = saved_steps_ = *restored;
  reports_->GoOnAfter(steps_);
  if (!restored.has_value()) return absl::OkStatus();
  return CallHooks("checkpoint load", [&](SessionHooks& hooks) {
    return hooks.OnCheckpointLoad(*this);
  });
}

absl::Status Session::Save() {
  if (job_.checkpoint.path.empty()) return absl::OkStatus();
  if (is_in_step_) {
    // The session can't know whether the trainer has already updated its
    // parameters.
    save_requested_ = true;
    return absl::OkStatus();
  }
  save_requested_ = false;
  reports_->Flush();
  LOCKSTEP_RETURN_IF_ERROR(CallHooks(
      "checkpoint save",
      [&](SessionHooks& hooks) { return hooks.OnCheckpointSave(*this); }));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint_->Save(steps_));
  saved_steps_ = steps_;
  return absl::OkStatus();
}

}  // namespace lockstep
