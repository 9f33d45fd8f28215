#include "lockstep/collective/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>  // NOLINT: base/steady_time.h speaks chrono
#include <thread>  // NOLINT: to sleep
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/nccl/nccl_api.h"

namespace lockstep::internal_collective {
namespace {

// A wait of at most this time does not sleep.
constexpr std::chrono::microseconds kSpin(50);
constexpr std::chrono::microseconds kLongestPause(1000);

// The time between two looks for a failure.
constexpr std::chrono::milliseconds kLookEvery(1);

// The time that an abort waits for a thread to leave a call, in slices. The
// thread may hang in a launch for which the device has no room; then the abort
// makes room. But it may also be a thread that is kept from running, and that
// will use the communicator after the abort has freed it. Nothing tells these
// two apart. A longer wait makes this rarer, but ends a hang later. Slices are
// counted, instead of reading the clock, so that a process that was stopped
// waits all the same.
constexpr absl::Duration kSlice = absl::Milliseconds(10);
constexpr int kSlicesOfCall = 100;

}  // namespace

void Pauses::Pause() const {
  const auto waited = SteadyNow() - begun_;
  if (waited < kSpin) return std::this_thread::yield();
  std::this_thread::sleep_for(
      std::min<SteadyTime::duration>(waited / 8, kLongestPause));
}

NcclComm* NcclCommunicator::Enter(Inside inside) {
  MutexLock lock(mutex_);
  while (inside_ != Inside::kNobody && life_ == Life::kUsed) {
    left_.Wait(mutex_);
  }
  if (life_ != Life::kUsed || comm_ == nullptr) return nullptr;
  inside_ = inside;
  return comm_;
}

void NcclCommunicator::Leave() {
  MutexLock lock(mutex_);
  inside_ = Inside::kNobody;
  left_.NotifyAll();
}

NcclResult NcclCommunicator::State(NcclComm* comm) const {
  NcclResult state = NcclResult::kSuccess;
  const NcclResult asked = nccl_.CommGetAsyncError(comm, &state);
  return asked == NcclResult::kSuccess ? state : asked;
}

absl::Status NcclCommunicator::StatusOf(absl::string_view what,
                                        NcclResult result) const {
  absl::StatusCode code = absl::StatusCode::kInternal;
  switch (result) {
    case NcclResult::kSuccess:
      return absl::OkStatus();
    case NcclResult::kRemoteError:
    case NcclResult::kSystemError:
      code = absl::StatusCode::kUnavailable;
      break;
    case NcclResult::kInvalidUsage:
      code = absl::StatusCode::kInvalidArgument;
      break;
    default:
      break;
  }
  return absl::Status(
      code, absl::StrCat("nccl, ", what, ": ", nccl_.GetErrorString(result),
                         " (", nccl_.GetLastError(nullptr), ")"));
}

absl::StatusOr<bool> NcclCommunicator::Settled(absl::string_view what,
                                               NcclResult result) const {
  if (result == NcclResult::kInProgress) return false;
  LOCKSTEP_RETURN_IF_ERROR(StatusOf(what, result));
  return true;
}

absl::StatusOr<bool> NcclCommunicator::Settled(absl::string_view what) {
  NcclComm* const comm = Enter(Inside::kLooking);
  if (comm == nullptr) return TransportCancelled();
  const NcclResult result = State(comm);
  Leave();
  return Settled(what, result);
}

absl::Status NcclCommunicator::Await(absl::string_view what) {
  const Pauses pauses;
  while (!cancelled_) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool settled, Settled(what));
    if (settled) return absl::OkStatus();
    pauses.Pause();
  }
  return TransportCancelled();
}

absl::Status NcclCommunicator::Connect(int size, const NcclUniqueId& id,
                                       int rank) {
  NcclConfig config;
  config.blocking = 0;
  {
    MutexLock lock(mutex_);
    if (life_ != Life::kUsed) return TransportCancelled();
    inside_ = Inside::kCalling;
  }
  const NcclResult result =
      nccl_.CommInitRankConfig(&made_, size, id, rank, &config);
  bool is_aborted = false;
  {
    MutexLock lock(mutex_);
    is_aborted = life_ != Life::kUsed;  // the abort has not waited for this
    if (!is_aborted) comm_ = made_;
  }
  Leave();
  if (is_aborted) {
    if (made_ != nullptr) nccl_.CommAbort(made_);
    return TransportCancelled();
  }
  absl::Status status = result == NcclResult::kInProgress
                            ? Await("connecting")
                            : StatusOf("connecting", result);
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(status.message(),
                   "; every rank needs a CUDA device of its own: set "
                   "NcclOptions::device"));
}

absl::Status NcclCommunicator::AsyncError() {
  NcclComm* comm = nullptr;
  {
    MutexLock lock(mutex_);
    const SteadyTime now = SteadyNow();
    if (comm_ == nullptr || life_ != Life::kUsed ||
        inside_ != Inside::kNobody || !failure_.ok() || now < next_look_) {
      return failure_;
    }
    next_look_ = now + kLookEvery;
    inside_ = Inside::kLooking;
    comm = comm_;
  }
  const NcclResult state = State(comm);
  const absl::Status status = state == NcclResult::kInProgress
                                  ? absl::OkStatus()
                                  : StatusOf("communicating", state);
  Leave();
  MutexLock lock(mutex_);
  failure_.Update(status);
  return failure_;
}

void NcclCommunicator::Abort() {
  NcclComm* comm = nullptr;
  {
    MutexLock lock(mutex_);
    if (life_ == Life::kAborting) return;
    life_ = Life::kAborting;
    left_.NotifyAll();
    int slices = 0;
    while (inside_ == Inside::kLooking ||
           (inside_ == Inside::kCalling && slices < kSlicesOfCall)) {
      if (left_.WaitUntil(mutex_, After(kSlice))) ++slices;
    }
    comm = std::exchange(comm_, nullptr);
  }
  if (comm != nullptr) nccl_.CommAbort(comm);
  MutexLock lock(mutex_);
  life_ = Life::kAborted;
}

bool NcclCommunicator::aborted() {
  MutexLock lock(mutex_);
  return life_ == Life::kAborted;
}

void NcclCommunicator::Finalize() {
  NcclComm* const comm = Enter(Inside::kCalling);
  if (comm == nullptr) return;
  const NcclResult result = nccl_.CommFinalize(comm);
  Leave();
  if (result != NcclResult::kSuccess && result != NcclResult::kInProgress) {
    Abort();
  }
}

void NcclCommunicator::DestroyUntil(SteadyTime until) {
  const Pauses pauses;
  while (NcclComm* const comm = Enter(Inside::kLooking)) {
    const NcclResult state = State(comm);
    Leave();
    if (state == NcclResult::kSuccess) {
      MutexLock lock(mutex_);
      nccl_.CommDestroy(std::exchange(comm_, nullptr));
      return;
    }
    if (state != NcclResult::kInProgress || SteadyNow() >= until) {
      return Abort();
    }
    pauses.Pause();
  }
}

}  // namespace lockstep::internal_collective
