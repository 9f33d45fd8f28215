#include "lockstep/collective/engine/host_lane.h"

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep::internal_collective {

void HostLane::IssueUnlocking(LaneGroup& group,
                              const std::shared_ptr<IssuedWork>& work,
                              uint64_t fingerprint,
                              std::shared_ptr<Launch> /*launch*/) {
  Enter(group, work, fingerprint);
  work->number = issued();
  const bool alone = turns().size() == 1;
  const bool posted =
      alone && CanRun(group) && transport_.Post(work->op, fingerprint);
  // A posted operation is finished when a caller waits for it, or from the next
  // tick on.
  if (!posted) {
    Want(group, alone ? work->issued + kWaiterTakes : SteadyTime());
  }
}

bool HostLane::AwaitUnlocking(LaneGroup& group, const IssuedWork& /*work*/,
                              Waiting& waiting) {
  if (!waiting.for_ever()) {
    Want(group);
  } else if (CanRun(group)) {
    RunFirstUnlocking(group);
    return false;
  }
  return group.changed.WaitUntil(group.mutex, waiting.until());
}

absl::Status HostLane::CheckStreams(absl::string_view instead) const {
  return absl::UnimplementedError(absl::StrCat(
      "this backend has no streams: ", instead, ", or use the nccl backend"));
}

}  // namespace lockstep::internal_collective
