#include "lockstep/collective/local/local_group.h"

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/control/control_plane.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/engine/engine_options.h"
#include "lockstep/collective/engine/exchange.h"
#include "lockstep/collective/engine/group.h"
#include "lockstep/collective/local/local_stars.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/rendezvous/star.h"

namespace lockstep {
namespace {

using internal_collective::ControlPlane;
using internal_collective::EngineOptions;
using internal_collective::Exchanges;
using internal_collective::Group;
using internal_collective::kMostLocalRanks;
using internal_collective::LocalStarOptions;
using internal_collective::Star;

using Ranks = std::vector<std::unique_ptr<Communicator>>;

absl::StatusOr<Ranks> Join(const LocalGroupOptions& options) {
  // Ranks that wait look themselves for operations that are late.
  LocalStarOptions stars_options;
  stars_options.has_thread = false;
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::vector<std::unique_ptr<Star>> stars,
      internal_collective::MakeLocalStars(options.size, stars_options));
  // Each communicator owns the control planes of all ranks: a rank that drops
  // its communicator leaves the group, and no rank is gone from the job.
  const auto planes =
      std::make_shared<std::vector<std::unique_ptr<ControlPlane>>>();
  for (std::unique_ptr<Star>& star : stars) {
    planes->push_back(std::make_unique<ControlPlane>(std::move(star)));
  }
  std::vector<int> all(options.size);
  std::iota(all.begin(), all.end(), 0);
  EngineOptions engine;
  engine.name = options.name;
  engine.backend = internal_collective::kLocalBackend;
  engine.job_ranks = std::make_shared<const std::vector<int>>(std::move(all));
  engine.deadline = options.deadline;
  engine.made_elsewhere = true;
  engine.exchanges = std::make_shared<Exchanges>();
  Ranks ranks;
  for (const std::unique_ptr<ControlPlane>& plane : *planes) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<Group> group,
                              Group::Join(*plane, engine));
    LOCKSTEP_ASSIGN_OR_RETURN(
        auto rank,
        Communicator::Of(std::shared_ptr<ControlPlane>(planes, plane.get()),
                         std::move(group)));
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MakeLocalGroup(
    const LocalGroupOptions& options) {
  if (options.size < 1 || options.size > kMostLocalRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("size should be 1 to ", kMostLocalRanks,
                     ", but got size=", options.size));
  }
  if (options.deadline <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("deadline should be more than nothing, but got deadline=",
                     absl::FormatDuration(options.deadline)));
  }
  return CatchAll("making a group", [&] { return Join(options); });
}

}  // namespace lockstep
