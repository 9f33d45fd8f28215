// Examines the ranks of a job together: what they can reach, whether each
// backend gives the right results, and how fast each two exchange data.
//
//   RanksOptions options;
//   options.until = absl::Now() + absl::Minutes(2);
//   const RanksReport report = ExamineRanks(*world, options);
#ifndef LOCKSTEP_TOOLS_DOCTOR_RANKS_H_
#define LOCKSTEP_TOOLS_DOCTOR_RANKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/world.h"
#include "lockstep/tools/doctor/facts.h"
#include "lockstep/tools/doctor/finding.h"
#include "lockstep/tools/doctor/pairs.h"

namespace lockstep {

// How much is done.
struct Effort {
  int64_t most_elements = 1 << 18;  // of a buffer of the backends' tests
  PairOptions pairs;
};

// Returns the effort of doctor --deep: larger messages, and all pairs.
Effort DeepEffort();

struct RanksOptions {
  absl::Time until;  // when to give up
  Effort effort;

  // What was found on this machine, if this rank has looked.
  MachineReport machine;
  MachineFacts facts;

  NcclOptions nccl;
  // The backend of the job's group, if it is one of the user's own, and a
  // function that makes such a group.
  std::string own_backend;
  std::function<absl::StatusOr<std::unique_ptr<Communicator>>(World& world)>
      make_own;

  // Receives lines about the progress, on rank 0.
  std::function<void(absl::string_view)> tell = [](absl::string_view) {};
};

// The pairs over one backend.
struct BackendPairs {
  std::string backend;
  std::vector<PairSpeed> pairs;
};

// What rank 0 knows at the end. The other ranks have only findings, and these
// only where they could not take part.
struct RanksReport {
  std::vector<std::string> hosts;       // by rank
  std::vector<MachineReport> machines;  // one for each, that of rank 0 first
  std::vector<Finding> findings;
  std::vector<double> copies;  // bytes in a second, by rank
  std::vector<BackendPairs> pairs;
};

// All ranks of the world call it. It returns soon after `until`, if not before.
RanksReport ExamineRanks(World& world, const RanksOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DOCTOR_RANKS_H_
