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
#include "lockstep/base/fingerprint.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/world.h"
#include "lockstep/tools/doctor/facts.h"
#include "lockstep/tools/doctor/finding.h"
#include "lockstep/tools/doctor/pairs.h"

namespace lockstep {

// An Effort says how much is done.
struct Effort {
  int64_t most_elements = 1 << 18;  // of a buffer of the backends' tests
  int most_partners = 127;          // each rank is paired with so many others
  PairOptions pairs;
  double for_pairs = 0.7;  // of the time, after which no more are measured
};

// Returns the effort of doctor --deep: larger messages, and all pairs.
Effort DeepEffort();

struct RanksOptions {
  absl::Time until;  // when to give up
  Effort effort;

  // The report about this machine, if this rank has looked.
  MachineReport machine;
  MachineFacts facts;
  // A text that only ranks of this machine have. "" stands for its name and
  // that of the memory that its processes share. A test may set it.
  std::string machine_id;
  // The processors on which this rank may run, as "0-3,8". "" stands for those
  // that the system says. A test may set it.
  std::string processors;

  NcclOptions nccl;
  // The job's settings, which all ranks must have.
  Fingerprint job;
  // The backend of the job's group. If it is one of the user's own, there is a
  // function that makes such a group.
  std::string backend = "auto";
  std::function<absl::StatusOr<std::unique_ptr<Communicator>>(World& world)>
      make_own;

  // Called on each rank with what it does next.
  std::function<void(absl::string_view)> tell = [](absl::string_view) {};
};

// The pairs over one backend.
struct BackendPairs {
  std::string backend;
  std::vector<PairSpeed> pairs;
};

// A connection that could not be made.
struct Unconnected {
  int from = 0, to = 0;
  std::string place;  // "10.0.0.7:41234"
  std::string why;
};

// A RanksReport holds what rank 0 knows at the end.
struct RanksReport {
  std::vector<std::string> hosts;       // by rank
  std::vector<MachineReport> machines;  // one for each, that of rank 0 first
  std::vector<Finding> findings;
  std::vector<Unconnected> unconnected;
  std::vector<double> copies;  // bytes in a second, by rank
  std::vector<BackendPairs> pairs;

  // True if this rank has to say what was found: rank 0 has, and the others
  // have if rank 0 is gone.
  bool must_speak = true;
};

// All ranks of the world call it. It returns soon after `until`, if not before.
RanksReport ExamineRanks(World& world, const RanksOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DOCTOR_RANKS_H_
