// The command of the lockstep tool that starts the ranks of one host: launch.
//
//   LaunchCommand command;
//   command.n = 4;
//   command.program = {"./train", "--lr=0.1"};
//   return RunLaunch(command, EnvironmentOfProcess());
#ifndef LOCKSTEP_TOOLS_CLI_LAUNCH_H_
#define LOCKSTEP_TOOLS_CLI_LAUNCH_H_

#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/tools/cli/launch_command.h"

namespace lockstep {

// Runs the program once for each rank, with `environment` and torchrun's
// variables. The lines that ranks print go to stdout and stderr, each after
// "[rank 2] "; a line of more than PIPE_BUF bytes is cut into several.
//
// When a rank fails, the others are ended, and all are started again if there
// is a restart left. SIGINT, SIGTERM, SIGHUP and SIGPIPE are passed on to the
// ranks and end the launch, unless they were ignored before. Each rank is a
// process group. Nothing is left of the groups at the end, however the launcher
// ends: a second process, the keeper, kills the groups if the launcher is
// killed. Ranks have the caller's limit of open files; the launcher raises its
// own as far as the system allows.
//
// Returns the exit code and writes the reason to stderr:
//   0          All ranks have exited with 0.
//   1          The system gives no processes.
//   2          The flags make no sense.
//   127        The program can't be executed.
//   128 + N    Signal N has ended the launch, or has killed the rank that
//              failed first.
//   any other  The exit code of the rank that failed first.
// A rank that was killed or has crashed comes before those that exited while it
// was dying.
//
// Requires: the process has one thread, and this call is the last thing that
// it does, because the call takes over the process's signals.
int RunLaunch(const LaunchCommand& command, const Environment& environment);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_LAUNCH_H_
