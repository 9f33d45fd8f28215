// Lets the calls of an executor in, counts them, and lets their owner wait for
// those inside without waiting for those that have not begun: a scheduler that
// is busy with other work may be long in beginning them. Internal.
//
// The life of a call:
//
//   if (gate->Begin(most)) executor->Start();  // on any thread
//
//   if (!gate->Enter()) return;                // on a worker, some time later
//   Work();
//   gate->End();
//   StartOthersIfThereIsWork();
//   gate->Leave();
#ifndef LOCKSTEP_LOADER_GATE_H_
#define LOCKSTEP_LOADER_GATE_H_

#include <atomic>

#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"

namespace lockstep::internal_loader {

// Requires: each Begin that returned true is followed by one End, or by one
// Enter that returns false. The gate outlives its owner, since calls that begin
// later must find it shut: share it by a shared_ptr.
// Guarantees: active() is the number of calls that were begun and have not
// ended.
// Thread-safety: thread-safe; Shut, TryShut and Open are for the owner.
// Memory ordering: Begin, End and active() are sequentially consistent, as
// pipeline.h needs it.
class Gate {
 public:
  // Counts one more call, which the caller then starts. Returns false, and
  // counts none, if there are `most` already.
  bool Begin(int most) {
    int active = active_.load();
    while (active < most) {
      if (active_.compare_exchange_weak(active, active + 1)) return true;
    }
    return false;
  }

  // Counts one call less: it does no more work, or could not be started.
  // Returns how many are left.
  int End() { return active_.fetch_sub(1) - 1; }

  int active() const { return active_.load(); }

  // The same without an order. It may be out of date.
  int ActiveHint() const { return active_.load(std::memory_order_relaxed); }

  // Returns true if the call may go on; it must then call Leave last. Returns
  // false if the gate is shut, and has then done what End does.
  bool Enter() {
    MutexLock lock(mutex_);
    if (shut_) {
      End();
      return false;
    }
    ++inside_;
    return true;
  }

  // The owner may be gone when this returns.
  void Leave() {
    MutexLock lock(mutex_);
    if (--inside_ == 0) empty_.NotifyAll();
  }

  // Lets no call in any more, and waits until none is inside.
  void Shut() {
    MutexLock lock(mutex_);
    shut_ = true;
    while (inside_ > 0) empty_.Wait(mutex_);
  }

  // The same without waiting. Returns true if no call is inside.
  bool TryShut() {
    MutexLock lock(mutex_);
    shut_ = true;
    return inside_ == 0;
  }

  void Open() {
    MutexLock lock(mutex_);
    shut_ = false;
  }

 private:
  std::atomic<int> active_{0};
  Mutex mutex_;
  CondVar empty_;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_GATE_H_
