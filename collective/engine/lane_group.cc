#include "lockstep/collective/engine/lane_group.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {

LaneGroup::LaneGroup(ControlPlane* control, const EngineOptions& options,
                     int rank, std::shared_ptr<OperationLog> log)
    : control(*control),
      options(options),
      timing(control->timing()),
      rank(rank),
      size(static_cast<int>(options.job_ranks.size())),
      log(std::move(log)) {}

verdicts::Party LaneGroup::PartyOf(int each) const {
  return {absl::StrCat("rank ", each),
          control.peers()[options.job_ranks[each]].ForBlame()};
}

void LaneGroup::End(IssuedWork& work, const absl::Status& result,
                    SteadyTime now) {
  if (work.result.ok()) work.result = result;
  if (--work.open > 0) return;
  log->End(work.ticket, work.result.code(), now);
  changed.NotifyAll();
}

}  // namespace lockstep::internal_collective
