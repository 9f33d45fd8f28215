// The list of all commands of the lockstep tool, with their flags.
//
//   CommandFlags flags;
//   for (Subcommand& each : AllSubcommands(flags)) {
//     std::cout << each.line.Help();
//   }
#ifndef LOCKSTEP_TOOLS_CLI_SUBCOMMANDS_H_
#define LOCKSTEP_TOOLS_CLI_SUBCOMMANDS_H_

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/tools/cli/bench_loader.h"
#include "lockstep/tools/cli/check.h"
#include "lockstep/tools/cli/command_line.h"
#include "lockstep/tools/cli/doctor_command.h"
#include "lockstep/tools/cli/exchange_commands.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/launch_command.h"
#include "lockstep/tools/cli/order_command.h"
#include "lockstep/tools/cli/parts_command.h"
#include "lockstep/tools/cli/plan.h"
#include "lockstep/tools/cli/report_command.h"
#include "lockstep/tools/cli/state.h"
#include "lockstep/tools/cli/trace_command.h"
#include "lockstep/tools/cli/verify.h"

namespace lockstep {

// One command of the tool.
struct Subcommand {
  CommandLine line;
  // Returns the exit code, or an error that is reported.
  std::function<absl::StatusOr<int>(const CommandHost& host, std::ostream& out)>
      run;
};

// The flags of all commands, which a command line sets.
struct CommandFlags {
  CheckCommand check;
  PlanCommand plan;
  OrderCommand order;
  VerifyCommand verify;
  LoaderCommand loader;
  PartsCommand parts;
  StateCommand state;
  ExchangeCommand exported, imported;
  DoctorCommand doctor;
  LaunchCommand launch;
  TraceCommand trace;
  ReportCommand report;
};

// Returns all commands. `flags` outlives them.
std::vector<Subcommand> AllSubcommands(CommandFlags& flags);

// Returns the help of the whole tool, and docs/cli.md.
std::string GeneralHelp(const std::vector<Subcommand>& subcommands);
std::string HelpAsMarkdown(const std::vector<Subcommand>& subcommands);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_SUBCOMMANDS_H_
