// An Executor runs the work of a loader, on oneTBB's workers or on threads of
// its own. Internal.
#ifndef LOCKSTEP_LOADER_EXECUTOR_H_
#define LOCKSTEP_LOADER_EXECUTOR_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_loader {

// Calls a job on worker threads.
// Thread-safety: Start, Nudge and shares_threads may be called from many
// threads at once, and the job may run on many threads at once.
class Executor {
 public:
  // `place` is below the width, and nearly always differs from that of calls
  // that run at the same time.
  using Job = std::function<void(int place)>;

  // May return before calls that were started have run. They may run later, or
  // never.
  virtual ~Executor() = default;

  // Has the job called once more, soon, on a worker. Throws if there is no
  // worker and the system has no thread or memory left for one; the job may
  // still be called some time.
  virtual void Start() = 0;

  // Repeats the signal of a Start, for a scheduler that may have missed it.
  virtual void Nudge() {}

  // Returns true if calls should return now and then, so that other work gets
  // the thread.
  virtual bool shares_threads() const = 0;
};

// Returns an executor with `width` threads, or RESOURCE_EXHAUSTED if the system
// has no more threads.
absl::StatusOr<std::unique_ptr<Executor>> MakeThreadExecutor(int width,
                                                             Executor::Job job);

// Returns an executor with a private arena for `width` of TBB's workers, or for
// fewer if the host has limited them. Unless `keep_limit` is set, TBB's own
// limit on its workers is raised by `width` for the whole process while the
// executor lives. FAILED_PRECONDITION in a fork of a process that has called
// this.
absl::StatusOr<std::unique_ptr<Executor>> MakeTbbExecutor(int width,
                                                          bool keep_limit,
                                                          Executor::Job job);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_EXECUTOR_H_
