// A job whose ranks are in one process, connected by a star in memory. It is
// for tests of the engine:
//
//   EngineJob job(3);
//   job.options.make_transport = ...;  // or shared memory
//   const auto ranks = job.JoinAll();
//   job.stars.Lose(2);
#ifndef LOCKSTEP_COLLECTIVE_TESTING_ENGINE_TESTING_H_
#define LOCKSTEP_COLLECTIVE_TESTING_ENGINE_TESTING_H_

#include <memory>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/language.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/control/control_plane.h"
#include "lockstep/collective/control/failure_timing.h"
#include "lockstep/collective/engine/engine_options.h"
#include "lockstep/collective/engine/group.h"
#include "lockstep/collective/shm/shm_transport.h"
#include "lockstep/collective/testing/memory_star.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// The times for ranks that are never stopped: all answer in the end.
constexpr FailureTiming kPatient = {absl::Seconds(30), absl::Seconds(30)};

// A job of several ranks.
// Thread-safety: thread-compatible.
class EngineJob {
 public:
  explicit EngineJob(int size, const FailureTiming& patience = kPatient,
                     bool by_hand = false)
      : stars(size, by_hand), groups(size) {
    for (int rank = 0; rank < size; ++rank) {
      planes.push_back(
          std::make_shared<ControlPlane>(stars.Take(rank), patience));
    }
    options.backend = "shm";
    std::vector<int> all(size);
    std::iota(all.begin(), all.end(), 0);
    options.job_ranks = std::make_shared<const std::vector<int>>(all);
    options.slow = absl::Milliseconds(30);
    options.make_transport = [](const TransportContext& context) {
      return MakeShmTransport(context);
    };
  }

  // Joins the group, and does not wait until it is connected.
  absl::StatusOr<std::unique_ptr<Communicator>> TryToJoin(int rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::shared_ptr<Group> group,
                              Group::Join(*planes[rank], options));
    groups[rank] = group;
    return Communicator::Of(planes[rank], group);
  }

  std::unique_ptr<Communicator> Join(int rank) {
    auto group = TryToJoin(rank);
    EXPECT_TRUE(group.ok()) << group.status();
    return group.ok() ? *std::move(group) : nullptr;
  }

  // Waits until the group that the rank has joined last is connected.
  absl::Status AwaitConnected(int rank) {
    return groups[rank].lock()->AwaitConnected();
  }

  std::vector<std::unique_ptr<Communicator>> JoinAll() {
    std::vector<std::unique_ptr<Communicator>> ranks;
    for (size_t rank = 0; rank < planes.size(); ++rank) {
      ranks.push_back(Join(static_cast<int>(rank)));
    }
    return ranks;
  }

  MemoryStars stars;
  EngineOptions options;
  std::vector<std::shared_ptr<ControlPlane>> planes;
  std::vector<std::weak_ptr<Group>> groups;  // by rank
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_TESTING_ENGINE_TESTING_H_
