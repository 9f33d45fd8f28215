// Where a loader's work runs: on oneTBB's workers or on threads of its own.
// Internal.
#ifndef LOCKSTEP_LOADER_EXECUTOR_H_
#define LOCKSTEP_LOADER_EXECUTOR_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_loader {

// Thread-safety: Start and Nudge are called from many threads at once.
class Executor {
 public:
  // Gets a number that is nearly always another one than that of calls which
  // run at the same time, below the width.
  using Job = std::function<void(int place)>;

  // May return before calls that were started have run. They may then run
  // later, or never.
  virtual ~Executor() = default;

  // The job is called once more, soon, on a worker. Throws where there is none
  // and the system has no thread or memory left for one; the job may be called
  // all the same, some time.
  virtual void Start() = 0;

  // For a scheduler that may have missed a Start.
  virtual void Nudge() {}

  // Whether a call should return now and then, so that others get the thread.
  virtual bool shares_threads() const = 0;
};

// `width` threads. RESOURCE_EXHAUSTED when the system has none to give.
absl::StatusOr<std::unique_ptr<Executor>> MakeThreadExecutor(int width,
                                                             Executor::Job job);

// A private arena for `width` of TBB's workers, or as many as TBB gives, which
// may have a limit of the host's. Unless `keep_limit`, TBB's own limit on its
// workers is raised by that many while the executor lives, for the whole
// process.
// FAILED_PRECONDITION in a fork of a process that has called this.
absl::StatusOr<std::unique_ptr<Executor>> MakeTbbExecutor(int width,
                                                          bool keep_limit,
                                                          Executor::Job job);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_EXECUTOR_H_
