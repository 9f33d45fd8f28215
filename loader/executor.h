// An Executor runs the work of a loader, on oneTBB's workers or on threads of
// its own. Internal.
#ifndef LOCKSTEP_LOADER_EXECUTOR_H_
#define LOCKSTEP_LOADER_EXECUTOR_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_loader {

// Calls a job on worker threads.
// Thread-safety: all functions but the destructor may be called from many
// threads at once, and the job may run on many threads at once.
class Executor {
 public:
  // `number` is below the width, and nearly always differs from that of calls
  // that run at the same time.
  using Job = std::function<void(int number)>;

  // May return before calls that were started have run. They may run later, or
  // never.
  virtual ~Executor() = default;

  // Has the job called once more, soon, on a worker. RESOURCE_EXHAUSTED if
  // there is no worker, and the system has no thread or memory left for one.
  // This is permanent, and calls that were started before may never come.
  virtual absl::Status Start() = 0;

  // Starts calls again that were started and have not begun for a while, since
  // the scheduler may have lost them. Returns what Start returns.
  virtual absl::Status Nudge() { return absl::OkStatus(); }

  // Does the same only where the scheduler is known to have lost calls. Costs
  // nothing otherwise.
  virtual absl::Status Rescue() { return absl::OkStatus(); }

  // Returns true if calls should return now and then, so that other work gets
  // the thread.
  virtual bool shares_threads() const = 0;

  // Returns how many calls may run at the same time: the width, or fewer if
  // the system did not start more threads, or if the host has limited TBB.
  virtual int threads() const = 0;
};

// Returns an executor with `width` threads. If the system does not start all of
// them, it has one less than the system starts, but at least one;
// RESOURCE_EXHAUSTED if the system starts none.
absl::StatusOr<std::unique_ptr<Executor>> MakeThreadExecutor(
    int width, const Executor::Job& job);

// Returns an executor with a private arena for `width` of TBB's workers, or for
// fewer if the host has limited them. Unless `keep_limit` is set, TBB's own
// limit on its workers is raised by `width` for the whole process while the
// executor lives. If the system does not start threads enough for all workers,
// the executor has threads of its own, as MakeThreadExecutor makes them. This
// may also happen later. FAILED_PRECONDITION in a fork of a process that has
// called this.
absl::StatusOr<std::unique_ptr<Executor>> MakeTbbExecutor(
    int width, bool keep_limit, const Executor::Job& job);

// Sets how long MakeTbbExecutor waits for TBB's threads to begin, and for them
// to be free again. Tests set it so high that a slow machine does not reach it.
void SetTbbPatience(absl::Duration patience);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_EXECUTOR_H_
