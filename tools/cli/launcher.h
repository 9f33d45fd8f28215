// Launcher runs the ranks of one host: it starts them, passes their output and
// signals on, ends them when one fails, and starts them again.
//
//   Launcher launcher(command, environment, std::move(signals),
//                     std::move(surroundings));
//   absl::StatusOr<int> exit_code = launcher.Run();
#ifndef LOCKSTEP_TOOLS_CLI_LAUNCHER_H_
#define LOCKSTEP_TOOLS_CLI_LAUNCHER_H_

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/rendezvous/failure_report.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/tools/cli/attempt_report.h"
#include "lockstep/tools/cli/launch_command.h"
#include "lockstep/tools/cli/process_end.h"
#include "lockstep/tools/cli/process_image.h"
#include "lockstep/tools/cli/rank_output.h"
#include "lockstep/tools/cli/rank_process.h"

namespace lockstep {

// Requires: the process has one thread.
// Guarantees: when Run() returns, nothing is left of the process groups of
// ranks.
// Thread-safety: for one thread at a time.
class Launcher {
 public:
  // `command` is valid and outlives this object. `environment` holds the
  // variables that are the same in all attempts. `signals` is a signalfd
  // without blocking, for SIGCHLD and for the signals that end the launch; all
  // of them are blocked. `report` gets a line for each attempt.
  Launcher(const LaunchCommand& command, Environment environment,
           Descriptor signals, ReportFile report, RankSurroundings surroundings)
      : command_(command),
        environment_(std::move(environment)),
        signals_(std::move(signals)),
        report_(std::move(report)),
        surroundings_(std::move(surroundings)) {}

  // Runs attempts until one succeeds, none is left, or a signal ends the
  // launch. Returns the exit code of the launch. Call it once.
  absl::StatusOr<int> Run();

 private:
  enum class State {
    // The doctor looks at this host. The next state is kRunning, and kStopping
    // when a signal ends the launch.
    kExamining,
    // No rank of this attempt has failed. The next state is kFailing when one
    // fails, and kStopping when a signal ends the launch.
    kRunning,
    // A rank has failed; the others get SIGTERM and then SIGKILL. The next
    // state is kRunning when the next attempt begins, and kStopping when a
    // signal ends the launch.
    kFailing,
    // A signal ends the launch. The ranks have got it, too, and get SIGKILL
    // after the grace. The next state is kStoppingNow at a second signal.
    kStopping,
    // A second signal has come. The ranks have got SIGKILL, and output that
    // nobody has read is dropped.
    kStoppingNow,
  };

  // The state of a rank at the moment in which the first failure was seen.
  enum class AtFailure { kAlive, kDying, kEnded };

  struct Rank {
    int64_t number = -1;  // -1 for the doctor
    pid_t pid = -1;
    std::vector<RankStream> streams;
    std::optional<ProcessEnd> end;  // Set when the rank has ended.
    bool sent_by_launcher = false;  // True for the signal that killed it.
    AtFailure at_failure = AtFailure::kAlive;
  };

  // A signal that all groups are sent at a time.
  struct Step {
    SteadyTime at;
    int signal;
  };

  // The end of an attempt. If `is_final` is true, the launcher does not start
  // the ranks again.
  struct AttemptEnd {
    int code = 0;
    bool is_final = false;
  };

  // The error that came first, as ranks have reported it.
  struct FirstError {
    int64_t rank = -1;         // -1 if no single rank is to blame
    int64_t reported_by = -1;  // `rank` itself, if it has reported its error
    std::string text;          // "" if no rank has reported it
    std::optional<Blame> blame;
  };

  // Runs the doctor, and returns its exit code.
  absl::StatusOr<int> RunDoctor();
  absl::StatusOr<AttemptEnd> RunOnce(int64_t attempt);
  // Returns the variables that all ranks of an attempt have in common.
  absl::StatusOr<Environment> EnvironmentOf(int64_t attempt);
  // Sets those of one rank, by its number among those of this host.
  void SetRank(int64_t local, Environment& environment) const;
  absl::Status StartAll(int64_t attempt);
  absl::Status Start(int64_t number, const ProcessImage& image);
  void Begin(State state);
  void AwaitRestart(int64_t attempt, absl::Duration delay);

  // Returns true if a signal ends the launch.
  bool stopping() const { return state_ >= State::kStopping; }

  // Returns true if all ranks have ended, and no process writes to their
  // streams any more or all such processes were killed.
  bool AllOver() const;

  // Returns the time of the next step.
  SteadyTime NextStep() const;

  // Waits until something has happened, or until `until`, and handles it.
  void PollOnce(SteadyTime until);
  void TakeSignals();
  void TakeSteps();
  void TakeStop(int signal);

  // Looks whether `rank` has ended, and handles that once.
  void TakeEnd(Rank& rank);
  void TakeFirstFailure(Rank& rank);
  void MoveBlame(Rank& rank);

  // Follows the ranks' reports from the rank whose failure was noticed first.
  FirstError FindFirstError() const;
  Rank* Find(int64_t number);

  void SendAll(int signal);
  void Reap();
  AttemptEnd Conclude(int64_t attempt);
  AttemptEnd EndOfAttempt(const Rank* noticed) const;
  void Summarize(const FirstError& first);
  // Returns the blame that no rank has reported, by how the rank has ended.
  Blame BlameByEnd() const;
  void Report(int64_t attempt, int code, const FirstError& first);

  // Waits until all output is written. If the launch has failed or a signal
  // ends it, drops what nobody takes.
  void WriteRest(bool has_failed);

  // Returns "ranks 0, 3", those that run, or "" if none does. It may also be
  // "the doctor".
  std::string Running() const;
  void Say(absl::string_view text) { err_.Add("lockstep launch: ", text); }

  const LaunchCommand& command_;
  const Environment environment_;
  const Descriptor signals_;
  ReportFile report_;
  const RankSurroundings surroundings_;
  Output out_{STDOUT_FILENO, "stdout"};
  Output err_{STDERR_FILENO, "stderr"};

  // The port of the first attempt, which the doctor looks at, too; 0 until it
  // is chosen.
  int64_t first_port_ = 0;

  State state_ = State::kRunning;
  int stop_ = 0;  // The signal that ends the launch, while stopping().

  // These belong to one attempt.
  std::vector<Rank> ranks_;
  std::deque<Step> steps_;  // The steps that are still to be taken.
  sigset_t sent_ = {};      // The signals that all groups were sent.
  const Rank* first_failed_ = nullptr;  // One of ranks_.
  std::optional<FailureReports> reports_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_LAUNCHER_H_
