// The ranks of a session and their groups: those that a host has given, or
// those that the session has joined and made itself. Internal.
#ifndef LOCKSTEP_SESSION_RANKS_H_
#define LOCKSTEP_SESSION_RANKS_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/world.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/registry.h"

namespace lockstep::internal_session {

// Thread-safety: thread-compatible.
class Ranks {
 public:
  // Takes the world and the groups that are not null, and makes the others.
  // Compares the job's settings over all ranks. `log` tells of slow operations.
  absl::Status Join(const Job& job, PluginRegistry& registry, World* world,
                    Communicator* group, Communicator* host_group,
                    const std::function<void(absl::string_view)>& log);

  // Ends the groups that Join has made, and returns the first error. If they
  // have failed, it is the failure of which all ranks are told, which may be
  // another one than Abort was given. After Abort, it also returns the failure
  // of a group that Join was given; that group stays open.
  absl::Status Close();

  // Ends both groups for all ranks, because this one has failed.
  void Abort(const absl::Status& why);

  // Ends the job on all ranks, because this rank could not begin. Does nothing
  // unless Join has made the world.
  void GiveUp(const absl::Status& why);

  World* world() const { return world_; }  // null: the host gave only a group
  Communicator& group() const { return *group_; }
  Communicator& host_group() const { return *host_group_; }
  bool has_host_group() const { return host_group_ != group_; }
  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }

 private:
  absl::StatusOr<std::unique_ptr<Communicator>> MakeHostGroup(
      const Job& job, PluginRegistry& registry) const;

  std::unique_ptr<World> own_world_;
  std::unique_ptr<Communicator> own_group_;
  std::unique_ptr<Communicator> own_host_group_;
  World* world_ = nullptr;
  Communicator* group_ = nullptr;
  bool aborted_ = false;
  Communicator* host_group_ = nullptr;
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_RANKS_H_
