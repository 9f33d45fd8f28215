// Runs ranks as threads of a test:
//
//   OnRanks(2, [](Communicator& group) { return Train(group); }, "tcp");
#ifndef LOCKSTEP_GRADIENTS_ON_RANKS_H_
#define LOCKSTEP_GRADIENTS_ON_RANKS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/world.h"

namespace lockstep {

using Rank = std::function<absl::Status(Communicator& group)>;

// Calls `rank` with a group on each of `size` ranks. Returns how each ended.
inline std::vector<absl::Status> StatusesOf(
    int size, const Rank& rank, const std::string& backend = "auto") {
  return LocalWorld(size).Run([&](World& world) -> absl::Status {
    GroupOptions options;
    options.backend = backend;
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup(options));
    return rank(*group);
  });
}

// The same, and expects that all end well.
inline void OnRanks(int size, const Rank& rank,
                    const std::string& backend = "auto") {
  EXPECT_THAT(StatusesOf(size, rank, backend), testing::Each(IsOk()));
}

}  // namespace lockstep

#endif  // LOCKSTEP_GRADIENTS_ON_RANKS_H_
