// The command of the lockstep tool that says where the time of a run went.
//
//   ReportCommand command;
//   command.path = "/data/runs/7/steps";
//   command.output = "report.html";
//   absl::StatusOr<int> exit_code = RunReportCommand(host, command, std::cout);
#ifndef LOCKSTEP_TOOLS_CLI_REPORT_COMMAND_H_
#define LOCKSTEP_TOOLS_CLI_REPORT_COMMAND_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/tools/cli/host.h"

namespace lockstep {

// The flags of the command, by their names.
struct ReportCommand {
  std::string path;
  std::optional<int64_t> run;
  std::string compare;  // the path of another run; empty: none
  std::optional<int64_t> compare_run;
  std::string metrics;
  std::vector<std::string> launch;
  std::string output;  // empty: the standard output
  std::string format;  // empty: html for a file, or else text
};

// Prints the report, or writes it to a file as a whole. Returns the exit code:
// 1 if a rank is left out.
absl::StatusOr<int> RunReportCommand(const CommandHost& host,
                                     const ReportCommand& command,
                                     std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_REPORT_COMMAND_H_
