#include "lockstep/collective/local/local_world.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>  // NOLINT: ranks
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/control/control_plane.h"
#include "lockstep/collective/engine/exchange.h"
#include "lockstep/collective/local/local_stars.h"
#include "lockstep/collective/rendezvous/star.h"

namespace lockstep {
namespace {

using internal_collective::ControlPlane;
using internal_collective::Exchanges;
using internal_collective::kMostLocalRanks;
using internal_collective::LocalStarOptions;
using internal_collective::MakeLocalStars;
using internal_collective::Star;

}  // namespace

std::vector<absl::Status> LocalWorld::Run(
    const std::function<absl::Status(World& world)>& rank) const {
  if (size_ < 1 || size_ > kMostLocalRanks) {
    return {absl::InvalidArgumentError(
        absl::StrCat("a LocalWorld should have 1 to ", kMostLocalRanks,
                     " ranks, but has ", size_))};
  }
  std::vector<absl::Status> ended(size_);
  std::vector<std::unique_ptr<World>> worlds;
  const absl::Status made = CatchAll("making a job", [&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Star>> stars,
                              MakeLocalStars(size_, LocalStarOptions()));
    const auto exchanges = std::make_shared<Exchanges>();
    for (std::unique_ptr<Star>& star : stars) {
      const int number = star->rank();
      worlds.push_back(std::unique_ptr<World>(
          new World(std::make_shared<ControlPlane>(std::move(star)), nullptr,
                    WorldOptions(), "127.0.0.1",
                    absl::StrCat("rank ", number, " of ", size_,
                                 ", a thread of this process"),
                    exchanges)));
    }
    return absl::OkStatus();
  });
  if (!made.ok()) {
    while (!worlds.empty()) worlds.pop_back();
    std::fill(ended.begin(), ended.end(), made);
    return ended;
  }
  std::vector<std::thread> threads;
  threads.reserve(worlds.size());
  for (size_t i = 0; i < worlds.size(); ++i) {
    const auto body = [&rank, &result = ended[i], &world = worlds[i]] {
      result = CatchAll("a rank", [&] { return rank(*world); });
      world = nullptr;  // as a process that ends
    };
    const absl::Status started = CatchAll("starting a thread", [&] {
      threads.emplace_back(body);
      return absl::OkStatus();
    });
    if (started.ok()) continue;
    ended[i] = started;
    worlds[i]->Abort(started);  // the others would wait for this rank
  }
  for (std::thread& thread : threads) thread.join();
  // Rank 0 waits for the others, so it comes last.
  while (!worlds.empty()) worlds.pop_back();
  return ended;
}

}  // namespace lockstep
