// The communicator of every backend between processes.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_ENGINE_COMMUNICATOR_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_ENGINE_COMMUNICATOR_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/control/control_plane.h"
#include "lockstep/collective/engine/engine_options.h"

namespace lockstep::internal_collective {

// A communicator whose ranks may not be connected yet. Operations may be issued
// meanwhile.
// Thread-safety: that of Communicator.
class JoinedGroup : public Communicator {
 public:
  // Waits until the group is connected, for its deadline at most.
  virtual absl::Status AwaitConnected() = 0;

 protected:
  using Communicator::Communicator;
};

// Joins the group, and begins to connect its ranks.
absl::StatusOr<std::unique_ptr<JoinedGroup>> JoinEngineGroup(
    std::shared_ptr<ControlPlane> control, const EngineOptions& options);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_ENGINE_COMMUNICATOR_H_
