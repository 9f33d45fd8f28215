#include "lockstep/session/ranks.h"

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/collective/world.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/registry.h"

namespace lockstep::internal_session {

absl::Status Ranks::Join(const Job& job, PluginRegistry& registry, World* world,
                         Communicator* group, Communicator* host_group,
                         const std::function<void(absl::string_view)>& log) {
  world_ = world;
  group_ = group;
  host_group_ = host_group;
  if (group_ == nullptr) {
    if (world_ == nullptr) {
      WorldOptions options = job.world;
      if (!options.on_slow) options.on_slow = log;
      LOCKSTEP_ASSIGN_OR_RETURN(own_world_, World::FromEnvironment(options));
      world_ = own_world_.get();
    }
    LOCKSTEP_ASSIGN_OR_RETURN(own_group_, job.MakeGroup(registry, *world_));
    group_ = own_group_.get();
  }
  if (host_group_ == nullptr) {
    // A group that moves only the memory of devices refuses this on all ranks.
    absl::Status same = CheckSame(*group_, "the job", job.fingerprint);
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
    LOCKSTEP_ASSIGN_OR_RETURN(own_host_group_, MakeHostGroup(job, registry));
    host_group_ = own_host_group_.get();
  }
  return CheckSame(*host_group_, "the job", job.fingerprint);
}

absl::StatusOr<std::unique_ptr<Communicator>> Ranks::MakeHostGroup(
    const Job& job, PluginRegistry& registry) const {
  Config settings;
  settings.Set("group", absl::StrCat(group_->name(), ", host"));
  for (const char* const key : {"deadline", "slow"}) {
    const Config* const set = job.group.Find(key);
    if (set != nullptr) settings.Set(key, *set);
  }
  PluginContext context;
  context.world = world_;
  return registry.Create<Communicator>("auto", context, settings);
}

absl::Status Ranks::Close() {
  absl::Status status;
  if (own_group_ != nullptr) status.Update(own_group_->Close());
  // A group that has failed refuses each operation with its failure.
  if (own_group_ == nullptr && aborted_) {
    status.Update(group_->Barrier().status());
  }
  if (own_host_group_ != nullptr) status.Update(own_host_group_->Close());
  return status;
}

void Ranks::Abort(const absl::Status& why) {
  aborted_ = true;
  group_->Abort(why);
  if (has_host_group()) host_group_->Abort(why);
}

void Ranks::GiveUp(const absl::Status& why) {
  if (own_world_ != nullptr) own_world_->Abort(why);
}

}  // namespace lockstep::internal_session
