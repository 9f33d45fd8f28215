// CommandMain is the main function of the lockstep tool. A trainer's program
// has a second binary with it, which knows the trainer's own parts and
// settings:
//
//   int main(int argc, char** argv) {
//     return lockstep::CommandMain<TrainerOptions>(argc, argv, RegisterParts);
//   }
//
//   bazel run //trainer:lockstep -- check job.toml --world=1,8
//   bazel run //trainer:lockstep -- plan --config=job.toml --world=8
//
// docs/cli.md lists the commands.
#ifndef LOCKSTEP_TOOLS_CLI_COMMAND_H_
#define LOCKSTEP_TOOLS_CLI_COMMAND_H_

#include "lockstep/base/language.h"
#include "lockstep/base/option_table.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {

namespace internal_tools {
int CommandMain(int argc, char** argv, const OptionTable* trainer,
                RegisterFunction register_parts);
}  // namespace internal_tools

// Runs the command that the command line names, with the parts of
// `register_parts` beside Lockstep's own. Data goes to stdout, and messages go
// to stderr. Returns the exit code: 0; 1 if something is wrong with what was
// looked at, or stdout can't be written; 2 if the command line makes no sense.
// The command launch has other codes (docs/launchers.md).
//
// The table [trainer] of a job is checked against TrainerOptions, which has
// BindOptions (option_table.h). Without TrainerOptions, it is not checked.
//
// Requires: the process has one thread, and this call is the last thing that
// it does.
template <typename TrainerOptions>
int CommandMain(int argc, char** argv,
                RegisterFunction register_parts = nullptr) {
  TrainerOptions trainer;
  const OptionTable table = TableOf(trainer);
  return internal_tools::CommandMain(argc, argv, &table, register_parts);
}
inline int CommandMain(int argc, char** argv,
                       RegisterFunction register_parts = nullptr) {
  return internal_tools::CommandMain(argc, argv, nullptr, register_parts);
}

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_COMMAND_H_
