// The command of the lockstep tool that starts the ranks of one host: launch.
//
//   LaunchCommand command;
//   command.n = 4;
//   command.program = {"./train", "--lr=0.1"};
//   return RunLaunch(command, EnvironmentOfProcess());
#ifndef LOCKSTEP_TOOLS_CLI_LAUNCH_H_
#define LOCKSTEP_TOOLS_CLI_LAUNCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/collective/rendezvous/launch_environment.h"

namespace lockstep {

// The flags of the command, by their names.
struct LaunchCommand {
  std::optional<int64_t> n;  // the ranks of this host; must be given

  int64_t nnodes = 1;
  int64_t node_rank = 0;

  // These three must be given, the same everywhere, when there are more nodes
  // than this one.
  std::string master_addr;  // "": 127.0.0.1
  int64_t master_port = 0;  // 0: one that is free, another in each attempt
  std::string run_id;       // "": a random one

  int64_t max_restarts = 0;

  // The second restart waits so long; see RestartDelay.
  absl::Duration restart_delay = absl::Seconds(1);

  // What ranks have, from the death of one or from a signal, to end by
  // themselves; and, from the end of all, what they have left running and
  // writes to their streams.
  absl::Duration grace = absl::Seconds(5);

  // What follows --: the program, and its arguments.
  std::vector<std::string> program;
};

// RestartDelay says how long restarts wait, so that a job that can't start
// leaves the host some time. The first one waits for nothing, the second one
// for `second`, and each later one twice as long, but no more than kMost. It
// begins anew after ranks that have run for at least kMost.
class RestartDelay {
 public:
  static constexpr absl::Duration kMost = absl::Minutes(1);

  explicit RestartDelay(absl::Duration second) : second_(second) {}

  // Returns how long the next restart waits, after ranks that ran for `ran`.
  absl::Duration Next(absl::Duration ran);

 private:
  const absl::Duration second_;
  absl::Duration next_ = absl::ZeroDuration();
};

// Runs the program once a rank, with `environment` and torchrun's variables.
// What ranks print goes to stdout and stderr, by lines that begin with
// "[rank 2] "; one of more than PIPE_BUF bytes is cut into several.
//
// When a rank fails the others are ended, and all are started again if there is
// a restart left. SIGINT, SIGTERM, SIGHUP and SIGPIPE are passed on to the
// ranks and end the launch, unless they were ignored before. Each rank is a
// process group, of which nothing is left at the end, however the launcher
// ends: a second process, the keeper, kills the groups when it is killed.
// Ranks have the caller's limit of open files; the launcher itself takes as
// many as it may.
//
// Returns the exit code: 0 if all ranks have exited with 0; that of the rank
// that failed first, or 128 + the signal that killed it (one that was killed or
// has crashed comes before those that exited while it was dying); 128 + the
// signal that ended the launch; 127 where the program can't be executed; 2
// where the flags make no sense, and 1 where the system gives no processes.
// stderr says why.
//
// It takes over the signals of the process, and should be the last thing that
// is done there, on its only thread.
int RunLaunch(const LaunchCommand& command, const Environment& environment);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_LAUNCH_H_
