// A Work is an operation that was issued, and may not be done yet.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(Work work, group->AllReduce(in, out, op));
//   Compute();
//   LOCKSTEP_RETURN_IF_ERROR(work.Wait());  // now `out` may be read
//
// If the caller has nothing to do meanwhile, it is shorter to write:
//
//   LOCKSTEP_RETURN_IF_ERROR(Wait(group->AllReduce(in, out, op)));
#ifndef LOCKSTEP_COLLECTIVE_WORK_H_
#define LOCKSTEP_COLLECTIVE_WORK_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/gpu/stream.h"

namespace lockstep {

namespace internal_collective {
class IssuedWork;
}  // namespace internal_collective

// A handle of an operation.
// Guarantees: collectives of a group end in their order. If one is done, the
// earlier ones are, too.
// Thread-safety: thread-safe.
//
// A Work may be dropped: the operation goes on. Its buffers must live until it
// is done, or until the communicator is destroyed, which releases them. So a
// function that makes both declares the buffers before the communicator; then
// it may return early. If the caller of a function owns the communicator, the
// function calls Abort and waits for all operations that it has issued before
// it returns early.
class [[nodiscard]] Work {
 public:
  // Makes a Work that is done, with OK.
  Work() = default;

  // Waits until the operation is done, and returns its result. After OK, the
  // host may read the data.
  absl::Status Wait() const;

  // Does the same, but returns DEADLINE_EXCEEDED if the operation is not done
  // at the time `until`. This limits only this wait: the operation goes on.
  absl::Status WaitUntil(absl::Time until) const;

  // Makes all work that is queued on `stream` from now on wait for the
  // operation. The host waits only until the operation is queued on the device.
  // That needs other ranks if they must connect first. Returns UNIMPLEMENTED if
  // the backend has no streams, or if the stream is being captured into a
  // graph.
  absl::Status WaitOnStream(Stream stream) const;

  // Returns true if the operation has ended, with success or not. Does not
  // wait. In a forked process, every operation has ended, with
  // FAILED_PRECONDITION.
  bool Done() const;

  // Returns the result of the operation, or OK while it has not ended.
  absl::Status status() const;

  // Only Lockstep itself calls this.
  explicit Work(std::shared_ptr<internal_collective::IssuedWork> issued)
      : issued_(std::move(issued)) {}

 private:
  std::shared_ptr<internal_collective::IssuedWork> issued_;
};

// Waits for an operation that has just been issued. If it was refused, returns
// the error.
inline absl::Status Wait(const absl::StatusOr<Work>& work) {
  return work.ok() ? work->Wait() : work.status();
}

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_WORK_H_
