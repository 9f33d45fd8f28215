// What to do when something fails, around a training that is next to nothing
// (training.cc has a real one). --fail=... shows each case, on rank 1:
//
//   lockstep launch -n 2 --max_restarts=1 -- recovery --checkpoint=/tmp/steps
//       --fail=late      it comes late: nothing has failed, but all are told
//              mismatch  it calls another operation: all are told which
//              nan       it spoils the loss: the training is given up
//              stuck     it comes no more: its watchdog ends the group
//              kill      it dies: all processes end, and are started again
//
// After all but the first, the ranks go on from the last checkpoint; where all
// processes live, they only make the group again.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <thread>  // NOLINT: the watchdog's

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/world.h"

ABSL_FLAG(std::string, checkpoint, "", "where the files begin to go on from");
ABSL_FLAG(std::string, fail, "", "late, mismatch, nan, stuck or kill");
ABSL_FLAG(absl::Duration, patience, absl::Minutes(5), "of the watchdog");

namespace {

using lockstep::Communicator;

constexpr int64_t kSteps = 20;
constexpr int64_t kStepsToSave = 5;
constexpr int64_t kFailingStep = 7;
constexpr int kMostFailures = 5;

// Ends the group when the trainer makes no step for so long, wherever it hangs:
// a deadline is that of an operation, and there may be none.
class Watchdog {
 public:
  Watchdog(Communicator& group, absl::Duration patience)
      : thread_([this, &group, patience] { Watch(group, patience); }) {}
  ~Watchdog() {
    Note(/*over=*/true);
    thread_.join();
  }

  void NoteStep() { Note(/*over=*/false); }
  bool gave_up() const { return gave_up_; }

 private:
  void Note(bool over) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++steps_;
    over_ = over;
    changed_.notify_all();
  }

  void Watch(Communicator& group, absl::Duration patience) {
    // Adding it to a time must not overflow.
    patience = std::min(patience, absl::Hours(24 * 365));
    std::unique_lock<std::mutex> lock(mutex_);
    while (!over_) {
      const int64_t seen = steps_;
      if (changed_.wait_for(lock, absl::ToChronoNanoseconds(patience),
                            [&] { return steps_ != seen; })) {
        continue;
      }
      group.Abort(absl::DeadlineExceededError(
          absl::StrCat("no step for ", absl::FormatDuration(patience))));
      gave_up_ = true;
      return;
    }
  }

  std::mutex mutex_;  // It guards the next three.
  std::condition_variable changed_;
  int64_t steps_ = 0;
  bool over_ = false;
  std::atomic<bool> gave_up_{false};
  std::thread thread_;  // last: it uses the others
};

// What goes wrong on rank 1, which a real trainer need not be taught.
absl::Status Fail(const std::string& how, Communicator& group,
                  const Watchdog& watchdog, const std::atomic<bool>& told_slow,
                  double& gradient) {
  if (how == "kill") raise(SIGKILL);
  if (how == "nan") gradient = std::nan("");
  if (how == "mismatch") return Wait(group.Barrier());
  while ((how == "late" && !told_slow) ||
         (how == "stuck" && !watchdog.gave_up())) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  return absl::OkStatus();
}

absl::Status Train(Communicator& group, Watchdog& watchdog,
                   const std::atomic<bool>& told_slow) {
  lockstep::CheckpointOptions options;
  options.path = absl::GetFlag(FLAGS_checkpoint);
  options.every_steps = kStepsToSave;
  lockstep::Checkpoint checkpoint(group, options);
  double weight = 100;
  LOCKSTEP_RETURN_IF_ERROR(
      checkpoint.Add("weight", lockstep::BufferOf(&weight, 1)));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> restored,
                            checkpoint.Restore());
  if (restored.has_value()) {
    std::printf("goes on after step %d\n", static_cast<int>(*restored));
  }
  int64_t steps = restored.value_or(0);
  while (steps < kSteps) {
    // Rank r wants the weight to be r.
    double gradient = 2 * (weight - group.rank());
    if (!restored.has_value() && steps == kFailingStep && group.rank() == 1) {
      LOCKSTEP_RETURN_IF_ERROR(Fail(absl::GetFlag(FLAGS_fail), group, watchdog,
                                    told_slow, gradient));
    }
    const auto buffer = lockstep::BufferOf(&gradient, 1);
    LOCKSTEP_RETURN_IF_ERROR(
        Wait(group.AllReduce(buffer, buffer, lockstep::ReduceOp::kAvg)));
    if (!std::isfinite(gradient)) {  // before it gets into a checkpoint
      return absl::AbortedError(
          absl::StrCat("in step ", steps, " the gradient is ", gradient));
    }
    weight -= 0.2 * gradient;
    ++steps;
    watchdog.NoteStep();
    if (checkpoint.IsDue(steps)) {
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(steps));
      watchdog.NoteStep();  // a slow disk does not take the next step's time
    }
  }
  // Nobody leaves before the last checkpoint is there.
  LOCKSTEP_RETURN_IF_ERROR(checkpoint.Wait());
  LOCKSTEP_RETURN_IF_ERROR(Wait(group.Barrier()));
  std::printf("after step %d the weight is %.2f\n", static_cast<int>(steps),
              weight);
  return group.Close();
}

absl::Status Run() {
  if (absl::GetFlag(FLAGS_checkpoint).empty()) {
    return absl::InvalidArgumentError("give --checkpoint=PATH");
  }
  std::atomic<bool> told_slow{false};
  lockstep::WorldOptions told;
  told.on_slow = [&told_slow](absl::string_view text) {
    std::fprintf(stderr, "slow: %s\n", std::string(text).c_str());
    told_slow = true;
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world,
                            lockstep::World::FromEnvironment(told));
  absl::Status failure;
  for (int failures = 0; failures < kMostFailures; ++failures) {
    told_slow = false;
    // Fails where a rank is lost: the launcher then starts all ranks again.
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup());
    Watchdog watchdog(*group, absl::GetFlag(FLAGS_patience));
    failure = Train(*group, watchdog, told_slow);
    if (failure.ok()) return failure;
    // This rank's own failure becomes that of all, which then make the group
    // again as this one does. After one of the group's it changes nothing.
    group->Abort(failure);
    std::fprintf(stderr, "failed: %s\n",
                 std::string(failure.message()).c_str());
    for (const lockstep::OperationRecord& done : group->RecentOperations()) {
      std::fprintf(stderr, "  %s\n", done.Describe().c_str());
    }
  }
  return failure;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("goes on after failures");
  absl::ParseCommandLine(argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // also in a pipe
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
