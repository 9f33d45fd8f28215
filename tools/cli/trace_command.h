// The command of the lockstep tool that shows what the ranks of a run did, on
// one time line.
//
//   TraceCommand command;
//   command.path = "/data/runs/7/steps";
//   absl::StatusOr<int> exit_code = RunTrace(host, command, std::cout);
#ifndef LOCKSTEP_TOOLS_CLI_TRACE_COMMAND_H_
#define LOCKSTEP_TOOLS_CLI_TRACE_COMMAND_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/tools/cli/host.h"

namespace lockstep {

// The flags of the command, by their names.
struct TraceCommand {
  std::string path;
  std::optional<int64_t> run;
  std::string steps;               // "120" or "100-200"; empty: all
  std::vector<std::string> ranks;  // empty: all
  absl::Duration max_error = absl::Milliseconds(1);
  std::string output;           // empty: the standard output
  std::string format = "json";  // or text or csv
};

// Prints the trace, or writes it to a file as a whole. Returns the exit code: 1
// if a rank is left out.
absl::StatusOr<int> RunTrace(const CommandHost& host,
                             const TraceCommand& command, std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_TRACE_COMMAND_H_
