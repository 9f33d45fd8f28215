// Handles failures, around a minimal training (training.cc has a real one).
// --fail=... shows each case, on rank 1:
//
//   lockstep launch -n 2 --max_restarts=1 -- recovery --checkpoint=/tmp/steps
//       --fail=late      it comes late: nothing fails, but all ranks report it
//              mismatch  it calls another operation: all ranks report which
//              nan       it spoils the loss: the training gives up this attempt
//              stuck     it hangs outside of operations: its watchdog acts
//              kill      it is killed: all processes end and are started again
//
// After each case except the first, the ranks continue from the last
// checkpoint. If all processes live, they only make a new group.
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
#include "lockstep/collective/blame.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation_log.h"
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

// Ends the group if the trainer makes no step for `patience`, wherever it
// hangs. A deadline would not be enough, since it belongs to an operation, and
// a rank may hang outside of any operation.
// Thread-safety: NoteStep and gave_up may be called on any thread.
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
  // It publishes no other memory, so its order does not matter.
  std::atomic<bool> gave_up_{false};
  std::thread thread_;  // last, since it uses the others
};

// Fails on rank 1. A real trainer does not need this.
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
    // The weight that is best for rank r is r.
    double gradient = 2 * (weight - group.rank());
    if (!restored.has_value() && steps == kFailingStep && group.rank() == 1) {
      LOCKSTEP_RETURN_IF_ERROR(Fail(absl::GetFlag(FLAGS_fail), group, watchdog,
                                    told_slow, gradient));
    }
    const auto buffer = lockstep::BufferOf(&gradient, 1);
    LOCKSTEP_RETURN_IF_ERROR(
        Wait(group.AllReduce(buffer, buffer, lockstep::ReduceOp::kAvg)));
    if (!std::isfinite(gradient)) {  // must not get into a checkpoint
      return absl::AbortedError(
          absl::StrCat("in step ", steps, " the gradient is ", gradient));
    }
    weight -= 0.2 * gradient;
    ++steps;
    watchdog.NoteStep();
    if (checkpoint.IsDue(steps)) {
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(steps));
      watchdog.NoteStep();  // so that a slow disk does not count
    }
  }
  // No rank may leave before the last checkpoint is on the disk.
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
  // It publishes no other memory, so its order does not matter.
  std::atomic<bool> told_slow{false};
  lockstep::WorldOptions options;
  options.on_slow = [&told_slow](absl::string_view text) {
    std::fprintf(stderr, "slow: %s\n", std::string(text).c_str());
    told_slow = true;
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world,
                            lockstep::World::FromEnvironment(options));
  absl::Status failure;
  for (int failures = 0; failures < kMostFailures; ++failures) {
    told_slow = false;
    // Fails if a rank is lost. Then the launcher starts all ranks again.
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup());
    Watchdog watchdog(*group, absl::GetFlag(FLAGS_patience));
    failure = Train(*group, watchdog, told_slow);
    if (failure.ok()) return failure;
    // With Abort, this rank's own failure becomes the failure of all ranks,
    // which then make a new group, too. If the group has already failed, it
    // changes nothing.
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
  std::fprintf(stderr, "%s\n", lockstep::ToLines(status).c_str());
  return 1;
}
