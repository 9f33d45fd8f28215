#include "lockstep/collective/engine/lane_group.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/collective/blame.h"

namespace lockstep::internal_collective {

LaneGroup::LaneGroup(ControlPlane* control, const EngineOptions& options,
                     int rank, std::shared_ptr<OperationLog> log)
    : control(*control),
      options(options),
      timing(control->timing()),
      rank(rank),
      size(static_cast<int>(options.job_ranks.size())),
      log(std::move(log)) {}

absl::Status LaneGroup::Named(const absl::Status& why) const {
  return WithBlame(
      absl::Status(why.code(),
                   absl::StrCat("rank ", rank, " of group '", options.name,
                                "': ", why.message())),
      BlameFor(why, options.job_ranks[rank]));
}

absl::Status LaneGroup::Blamed(const absl::Status& why, int blamed) const {
  return WithBlame(why, BlameFor(why, options.job_ranks[blamed]));
}

void LaneGroup::End(IssuedWork& work, const absl::Status& result,
                    SteadyTime now) {
  if (work.result.ok()) work.result = result;
  if (--work.open > 0) return;
  log->End(work.ticket, work.result.code(), now);
  changed.NotifyAll();
}

}  // namespace lockstep::internal_collective
