// An operation that was issued, and may not be done yet.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(Work work, group->AllReduce(in, out, op));
//   Compute();
//   LOCKSTEP_RETURN_IF_ERROR(work.Wait());  // now `out` may be read
//
// and where there is nothing to do meanwhile:
//
//   LOCKSTEP_RETURN_IF_ERROR(Wait(group->AllReduce(in, out, op)));
#ifndef LOCKSTEP_COLLECTIVE_WORK_H_
#define LOCKSTEP_COLLECTIVE_WORK_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/gpu/stream.h"

namespace lockstep {

namespace internal_collective {

// Returns what calls return in a process that was forked from `whom`.
absl::Status ForkedFrom(absl::string_view whom);

// What a backend makes of an operation. Thread-safe.
class WorkState {
 public:
  virtual ~WorkState() = default;

  // Returns whether this process was forked from the one that issued the
  // operation. Nothing else may be called then.
  bool forked() const { return fork_guard_.forked(); }

  // Waits until the operation is done or has failed, or until `until`; then it
  // returns false.
  virtual bool WaitUntil(absl::Time until) = 0;
  virtual absl::Status WaitOnStream(Stream stream) = 0;
  virtual bool done() const = 0;
  // OK while it is not done.
  virtual absl::Status status() const = 0;

 private:
  const ForkGuard fork_guard_;
};

}  // namespace internal_collective

// Waiting for the later of two collectives of a group means that the earlier
// one is done. Thread-safety: thread-safe.
//
// A Work that is dropped changes nothing: the operation goes on, and its
// buffers must live until it is done, or until the communicator is gone, which
// lets go of them. So a function that makes both declares the buffers first,
// and may then return early. A function that was given the communicator by its
// caller first calls Abort and waits for all that it has issued, if it returns
// early.
class [[nodiscard]] Work {
 public:
  // An operation that is done, with OK.
  Work() = default;

  // Waits until the operation is done, and returns how it ended. The host may
  // then read the data.
  absl::Status Wait() const;

  // The same, but DEADLINE_EXCEEDED when it is not done by then. This is the
  // patience of this call alone: the operation goes on.
  absl::Status WaitUntil(absl::Time until) const;

  // Makes what is queued on `stream` from now on wait for it. The host waits
  // only until it is on the device: that takes other ranks where they connect
  // for the first time, or agree first (GroupOptions::strict). UNIMPLEMENTED
  // where the backend has no streams, and for one that is being captured into a
  // graph.
  absl::Status WaitOnStream(Stream stream) const;

  // Returns whether it has ended, well or not. Does not wait for it. In a
  // forked process it has, with FAILED_PRECONDITION.
  bool Done() const;

  // How it ended; OK while it has not.
  absl::Status status() const;

  // For backends.
  explicit Work(std::shared_ptr<internal_collective::WorkState> state)
      : state_(std::move(state)) {}

 private:
  std::shared_ptr<internal_collective::WorkState> state_;
};

// Waits for an operation that has just been issued, or was refused.
inline absl::Status Wait(const absl::StatusOr<Work>& work) {
  return work.ok() ? work->Wait() : work.status();
}

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_WORK_H_
