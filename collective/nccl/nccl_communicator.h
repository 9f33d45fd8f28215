// A communicator of NCCL in its non-blocking mode. It follows NCCL's rules: one
// thread calls at a time, an operation that NCCL continues by itself is
// awaited, and no call comes after an abort.
#ifndef LOCKSTEP_COLLECTIVE_NCCL_NCCL_COMMUNICATOR_H_
#define LOCKSTEP_COLLECTIVE_NCCL_NCCL_COMMUNICATOR_H_

#include <atomic>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/collective/transport_util.h"

namespace lockstep::internal_collective {

// Pauses between two looks at a condition. A pause is longer, the longer the
// wait has already taken.
// Thread-safety: thread-safe.
class Pauses {
 public:
  void Pause() const;

 private:
  const SteadyTime begun_ = SteadyNow();
};

// A communicator of NCCL.
// Thread-safety: thread-safe.
class NcclCommunicator {
 public:
  // No call waits any more once `cancelled` is set.
  NcclCommunicator(const NcclApi& nccl, const std::atomic<bool>& cancelled)
      : nccl_(nccl), cancelled_(cancelled) {}
  ~NcclCommunicator() { Abort(); }

  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Connects, and waits for all ranks.
  // Requires: the device is the current one.
  absl::Status Connect(int size, const NcclUniqueId& id, int rank);

  // Calls `call`, which takes an NcclComm* and returns an NcclResult, and waits
  // until NCCL has finished it.
  template <typename Do>
  absl::Status Call(absl::string_view what, const Do& call) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool settled, Begin(what, call));
    return settled ? absl::OkStatus() : Await(what);
  }

  // Does the same without waiting. Begin returns false if NCCL goes on with the
  // call. Then Settled returns true once it has finished, and nothing else may
  // be called before that.
  template <typename Do>
  absl::StatusOr<bool> Begin(absl::string_view what, const Do& call) {
    NcclComm* const comm = Enter(Inside::kCalling);
    if (comm == nullptr) return TransportCancelled();
    const NcclResult result = call(comm);
    Leave();
    return Settled(what, result);
  }
  absl::StatusOr<bool> Settled(absl::string_view what);

  // Returns the error of queued operations, as far as it is known. Does not
  // wait.
  absl::Status AsyncError();

  // Ends queued operations, and returns when they have ended. If another thread
  // is aborting already, returns at once. Further calls return CANCELLED.
  void Abort();
  // Returns true if an abort has finished.
  bool aborted();

  // Ends the communicator in order, which waits for the other ranks. There are
  // two steps, so that several communicators can end at the same time. Aborts
  // if this does not succeed.
  void Finalize();
  void DestroyUntil(SteadyTime until);

 private:
  // The activity of the thread that is in NCCL. A look always returns soon; a
  // call may hang.
  enum class Inside { kNobody, kLooking, kCalling };

  // Waits until no other thread is in NCCL. Returns nullptr if there is no
  // communicator, or if it was aborted.
  NcclComm* Enter(Inside inside);
  void Leave();
  // Returns NCCL's state.
  // Requires: the thread has entered.
  NcclResult State(NcclComm* comm) const;
  absl::StatusOr<bool> Settled(absl::string_view what, NcclResult result) const;
  absl::Status Await(absl::string_view what);
  absl::Status StatusOf(absl::string_view what, NcclResult result) const;

  const NcclApi& nccl_;
  const std::atomic<bool>& cancelled_;
  // CommInitRankConfig stores the communicator here, and may set it once more
  // when it has connected.
  NcclComm* made_ = nullptr;

  Mutex mutex_;
  CondVar left_;
  NcclComm* comm_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Inside inside_ ABSL_GUARDED_BY(mutex_) = Inside::kNobody;
  enum class Life { kUsed, kAborting, kAborted };
  Life life_ ABSL_GUARDED_BY(mutex_) = Life::kUsed;
  SteadyTime next_look_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // found by AsyncError
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_NCCL_NCCL_COMMUNICATOR_H_
