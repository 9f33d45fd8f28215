// Reads the environment variables by which a launcher tells this process its
// rank, the number of ranks, and the address of rank 0.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const LaunchEnvironment launch,
//                             ReadLaunchEnvironment(EnvironmentOfProcess()));
//   // launch.Describe():
//   //   "rank 2 of 4, local rank 0 of 2 (torchrun); rank 0 at 10.0.0.7:29500"
//
// It knows torchrun (also with the store of torchrun's agent, and other
// programs that set its variables, such as `lockstep launch`), Slurm's srun,
// Open MPI, MPICH and others with PMI, MVAPICH2, and Kubernetes indexed jobs.
// If no variable of any of them is set, the world is this process alone, and
// the description says so. If only some of a launcher's variables are set, that
// is an error: nothing is guessed. docs/launchers.md has the variables and the
// rules.
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_LAUNCH_ENVIRONMENT_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_LAUNCH_ENVIRONMENT_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"

namespace lockstep {

// The most ranks that a job can have.
inline constexpr int kMostRanks = 1000000;

// The variables by name. A variable that is set to "" counts as not set.
using Environment = std::map<std::string, std::string>;

// Returns a copy of this process's variables. Lockstep reads them only here.
// Requires: no other thread sets a variable at the same time.
Environment EnvironmentOfProcess();

// The values that the launcher gave.
struct LaunchEnvironment {
  // "torchrun", "Slurm", "Open MPI", "PMI", "MVAPICH2" or "Kubernetes indexed
  // job". "none" means a world of one.
  std::string launcher = "none";

  int rank = 0;
  int size = 1;

  // The rank and the number of ranks on this host, or -1 if the launcher does
  // not say.
  int local_rank = -1;
  int local_size = -1;

  // The address on which rank 0 listens, "host:port". Empty in a world of one.
  std::string address;

  // The name of the job: the launcher's name, the run's id and the number of
  // its restarts. It is the same on all ranks of one attempt, and differs
  // between attempts if the launcher tells them apart. Empty if the launcher
  // gives no id. At most 256 bytes.
  std::string job;

  // The token: LOCKSTEP_TOKEN, or the first line of the file that
  // LOCKSTEP_TOKEN_FILE names. Empty if neither is set.
  std::string token;

  // The reason for a value that is not obvious: a port that is not MASTER_PORT,
  // or another launcher inside which this one has started the process.
  std::string note;

  // Returns all values except the token in one line.
  std::string Describe() const;
};

// Reads the variables. INVALID_ARGUMENT has everything that is wrong in one
// message: variables that are missing, have no meaning or contradict each
// other, each with its name and value. Its end is a line that would work.
//
// These variables are read, beside those of the launchers:
//   LOCKSTEP_TOKEN, LOCKSTEP_TOKEN_FILE
//   LOCKSTEP_PORT        rank 0's port; it takes precedence over all others
//
// Ranks that meet in another way (a file, a store) need no address.
absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment(
    const Environment& environment, bool needs_address = true);

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_LAUNCH_ENVIRONMENT_H_
