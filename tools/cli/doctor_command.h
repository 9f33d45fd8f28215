// The command of the lockstep tool that examines machines and ranks: doctor.
//
//   DoctorCommand command;
//   command.quick = true;
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const int code,
//       RunDoctor(host, command, EnvironmentOfProcess(), std::cout));
#ifndef LOCKSTEP_TOOLS_CLI_DOCTOR_COMMAND_H_
#define LOCKSTEP_TOOLS_CLI_DOCTOR_COMMAND_H_

#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/job_source.h"

namespace lockstep {

// The flags, by their names.
struct DoctorCommand {
  JobFlags job;
  bool quick = false;   // whether to look at this machine alone
  bool deep = false;    // whether to measure for longer
  bool strict = false;  // whether warnings count as failures
  absl::Duration timeout = absl::Minutes(3);
  std::string format = "text";
};

// Examines this machine, and then, if a launcher has started several ranks, the
// ranks together. Each machine is examined by its local rank 0, and rank 0
// prints what all have found. Returns 0 if a job can run, and otherwise 1. An
// error is one of the flags or of the job's text.
absl::StatusOr<int> RunDoctor(const CommandHost& host,
                              const DoctorCommand& command,
                              const Environment& environment,
                              std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_DOCTOR_COMMAND_H_
