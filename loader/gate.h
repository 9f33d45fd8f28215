// Lets the calls of an executor in, and lets their owner wait for those inside
// without waiting for those that have not begun: a scheduler that is busy with
// other work may be long in beginning them. Internal.
#ifndef LOCKSTEP_LOADER_GATE_H_
#define LOCKSTEP_LOADER_GATE_H_

#include <atomic>

#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"

namespace lockstep::internal_loader {

// Thread-safe. Outlives its owner: calls that begin later find it closed.
class Gate {
 public:
  // Calls that were started, or are inside. The caller of an executor adds to
  // it; whoever does not get in, or leaves, takes one off.
  std::atomic<int> active{0};

  // Whether the call may go on; if so, it must call Leave.
  bool Enter() {
    MutexLock lock(mutex_);
    if (shut_) {
      active.fetch_sub(1);
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

  // Lets nobody in any more, and waits until nobody is inside.
  void Shut() {
    MutexLock lock(mutex_);
    shut_ = true;
    while (inside_ > 0) empty_.Wait(mutex_);
  }

  void Open() {
    MutexLock lock(mutex_);
    shut_ = false;
  }

 private:
  Mutex mutex_;
  CondVar empty_;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_GATE_H_
