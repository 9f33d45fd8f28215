// A communicator of NCCL's that does not block, and what NCCL asks for: one
// thread calls at a time, what it goes on with on its own is awaited, and
// nobody calls once it is aborted.
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

namespace lockstep::internal_collective {

// Waits between two looks at something: longer, the longer it takes.
class Pauses {
 public:
  void Pause() const;

 private:
  const SteadyTime begun_ = SteadyNow();
};

// Thread-safety: thread-safe.
class NcclCommunicator {
 public:
  // When `cancelled` is set, nothing is awaited any more.
  NcclCommunicator(const NcclApi& nccl, const std::atomic<bool>& cancelled)
      : nccl_(nccl), cancelled_(cancelled) {}
  ~NcclCommunicator() { Abort(); }

  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Waits for all ranks. Requires that the device is the current one.
  absl::Status Connect(int size, const NcclUniqueId& id, int rank);

  // Does `call`, which takes an NcclComm* and returns an NcclResult, and awaits
  // what NCCL goes on with.
  template <typename Do>
  absl::Status Call(absl::string_view what, const Do& call) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool settled, Begin(what, call));
    return settled ? absl::OkStatus() : Await(what);
  }

  // The same without waiting: false if NCCL goes on with it, and then whether
  // it has come to its end. Nothing else may be called until it has.
  template <typename Do>
  absl::StatusOr<bool> Begin(absl::string_view what, const Do& call) {
    NcclComm* const comm = Enter(Inside::kCalling);
    if (comm == nullptr) return Cancelled();
    const NcclResult result = call(comm);
    Leave();
    return Settled(what, result);
  }
  absl::StatusOr<bool> Settled(absl::string_view what);

  // Whether what was queued has failed, as far as is known. Does not wait.
  absl::Status Look();

  // Ends what is queued, and returns when it has ended, unless another thread
  // is about to end it. Further calls are CANCELLED.
  void Abort();
  // Whether an abort is through.
  bool aborted();

  // The communicator's end in order, which waits for the other ranks', in two
  // steps since there may be several; an abort if that does not succeed.
  void Finalize();
  void DestroyUntil(SteadyTime until);

  // What a call that was cancelled returns.
  static absl::Status Cancelled();

 private:
  // What a thread does in NCCL: a look comes back, and a call may hang.
  enum class Inside { kNobody, kLooking, kCalling };

  // nullptr: there is no communicator (any more).
  NcclComm* Enter(Inside inside);
  void Leave();
  // Of a thread that has entered.
  NcclResult State(NcclComm* comm) const;
  absl::StatusOr<bool> Settled(absl::string_view what, NcclResult result) const;
  absl::Status Await(absl::string_view what);
  absl::Status StatusOf(absl::string_view what, NcclResult result) const;

  const NcclApi& nccl_;
  const std::atomic<bool>& cancelled_;
  // NCCL may set it once more when it has connected.
  NcclComm* made_ = nullptr;

  Mutex mutex_;
  CondVar left_;
  NcclComm* comm_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Inside inside_ ABSL_GUARDED_BY(mutex_) = Inside::kNobody;
  enum class Life { kUsed, kAborting, kAborted };
  Life life_ ABSL_GUARDED_BY(mutex_) = Life::kUsed;
  SteadyTime next_look_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // that Look has found
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_NCCL_NCCL_COMMUNICATOR_H_
