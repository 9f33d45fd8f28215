// The flags of lockstep launch.
//
//   LaunchCommand command;
//   command.n = 4;
//   command.program = {"./train", "--lr=0.1"};
//   LOCKSTEP_RETURN_IF_ERROR(Validate(command));
#ifndef LOCKSTEP_TOOLS_CLI_LAUNCH_COMMAND_H_
#define LOCKSTEP_TOOLS_CLI_LAUNCH_COMMAND_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lockstep {

// The flags of the command, by their names.
struct LaunchCommand {
  std::optional<int64_t> n;  // The number of ranks on this host; required.

  int64_t nnodes = 1;
  int64_t node_rank = 0;

  // If nnodes is more than 1, these three are required and must be the same on
  // all nodes.
  std::string master_addr;  // "" stands for 127.0.0.1.
  int64_t master_port = 0;  // 0 stands for a free one, anew in each attempt.
  std::string run_id;       // "" stands for a random one.

  int64_t max_restarts = 0;

  // The time for which the second restart waits; see RestartDelay.
  absl::Duration restart_delay = absl::Seconds(1);

  // The time that ranks have to end by themselves after one has failed. When
  // all ranks have ended, the processes that they have left running and that
  // write to their streams have this time, too.
  absl::Duration grace = absl::Seconds(5);

  // The time that ranks have to end by themselves after a signal. It should be
  // longer than the job's stop.patience, a step and a checkpoint take together.
  absl::Duration stop_grace = absl::Seconds(30);

  // A file for one line of JSON for each attempt (attempt_report.h), or "".
  std::string report;

  // If it is true, the doctor looks at this host before the first attempt, and
  // no rank is started if it finds a failure.
  bool doctor = false;

  // The words after --: the program and its arguments.
  std::vector<std::string> program;
};

// Returns INVALID_ARGUMENT, with what to do, if the flags make no sense.
absl::Status Validate(const LaunchCommand& command);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_LAUNCH_COMMAND_H_
