// What a launcher told this process by environment variables: which rank it is,
// of how many, and where rank 0 is.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const LaunchEnvironment launch,
//                             ReadLaunchEnvironment(EnvironmentOfProcess()));
//   // launch.Describe():
//   //   "rank 2 of 4, local rank 0 of 2 (torchrun); rank 0 at 10.0.0.7:29500"
//
// Known are torchrun (also under its agent's store, and whatever else sets its
// variables, as `lockstep launch` does), Slurm's srun, Open MPI, MPICH and
// others with PMI, MVAPICH2, and Kubernetes indexed jobs. With no variable of
// any of them, the world is this process alone, and says so. Anything between
// that and a whole set of variables is an error, never a guess;
// docs/launchers.md has the variables and the rules.
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_LAUNCH_ENVIRONMENT_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_LAUNCH_ENVIRONMENT_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Variables by name; one that is set to "" counts as not set.
using Environment = std::map<std::string, std::string>;

// A copy of this process's variables: the one place where Lockstep reads them.
// Not while another thread sets one.
Environment EnvironmentOfProcess();

struct LaunchEnvironment {
  // "torchrun", "Slurm", "Open MPI", "PMI", "MVAPICH2", "Kubernetes indexed
  // job", or "none": a world of one.
  std::string launcher = "none";

  int rank = 0;
  int size = 1;

  // -1 where the launcher does not say.
  int local_rank = -1;
  int local_size = -1;

  // Where rank 0 listens, "host:port"; "" in a world of one.
  std::string address;

  // The same on all ranks of one attempt, and another in each attempt as far as
  // the launcher tells them apart: its name, the run's id and how often it was
  // restarted. "" where it gives no id. At most 256 bytes.
  std::string job;

  // LOCKSTEP_TOKEN, or the first line of the file that LOCKSTEP_TOKEN_FILE
  // names; "" without.
  std::string token;

  // Why it is so, where that is not plain: the port that is not MASTER_PORT,
  // the launcher inside which the other has started this process.
  std::string note;

  // In one line, without the token.
  std::string Describe() const;
};

// INVALID_ARGUMENT has all that is wrong in one message: what is missing, what
// has no meaning, what contradicts what, each with the variable and its value,
// and at its end a line that would work.
//
// Beyond the launchers' own variables these are read:
//   LOCKSTEP_TOKEN, LOCKSTEP_TOKEN_FILE
//   LOCKSTEP_PORT        rank 0's port, before anything else that tells one
//
// Ranks that meet by other means (a file, a store) need no address.
absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment(
    const Environment& environment, bool needs_address = true);

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_LAUNCH_ENVIRONMENT_H_
