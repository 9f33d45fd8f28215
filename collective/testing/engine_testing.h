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
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/control/control_plane.h"
#include "lockstep/collective/control/failure_timing.h"
#include "lockstep/collective/engine/engine_communicator.h"
#include "lockstep/collective/engine/engine_options.h"
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
  explicit EngineJob(int size, const FailureTiming& patience = kPatient)
      : stars(size) {
    for (int rank = 0; rank < size; ++rank) {
      planes.push_back(
          std::make_shared<ControlPlane>(stars.Take(rank), patience));
    }
    options.backend = "shm";
    options.job_ranks.resize(size);
    std::iota(options.job_ranks.begin(), options.job_ranks.end(), 0);
    options.slow = absl::Milliseconds(30);
    options.make_transport = [](const TransportContext& context) {
      return MakeShmTransport(context);
    };
  }

  std::unique_ptr<Communicator> Join(int rank) {
    auto group = JoinEngineGroup(planes[rank], options);
    EXPECT_TRUE(group.ok()) << group.status();
    return group.ok() ? *std::move(group) : nullptr;
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
};

// Waits until a group that was joined by an EngineJob is connected.
inline absl::Status AwaitConnected(Communicator& group) {
  return dynamic_cast<JoinedGroup&>(group).AwaitConnected();
}

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_TESTING_ENGINE_TESTING_H_
