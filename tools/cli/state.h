// The command of the lockstep tool that says what a checkpoint has, and whether
// it fits.
//
//   StateCommand command;
//   command.path = "/data/model.000000000120";
//   LOCKSTEP_ASSIGN_OR_RETURN(const int code,
//                             RunState(host, command, std::cout));
#ifndef LOCKSTEP_TOOLS_CLI_STATE_H_
#define LOCKSTEP_TOOLS_CLI_STATE_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/job_source.h"

namespace lockstep {

// The flags of state, by their names.
struct StateCommand {
  std::string path;              // the checkpoint
  std::string other;             // one to compare it with, or ""
  JobFlags job;                  // a job to which it should fit
  std::optional<int64_t> world;  // the ranks of that job; 1 if not given
  std::optional<int64_t> size;   // as for check
  std::string format = "text";
};

// Prints what a checkpoint has: its step, its places in data, the job that
// saved it, and its sections with digests. With another checkpoint, prints what
// differs. With a job, prints what the job has changed, and whether its loaders
// can go on from the places. Returns 1 if something differs or does not fit,
// and otherwise 0.
absl::StatusOr<int> RunState(const CommandHost& host,
                             const StateCommand& command, std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_STATE_H_
