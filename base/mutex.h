// A mutex with thread-safety annotations, its scoped lock and its condition
// variable.
//
//   class Counter {
//    public:
//     void Add() {
//       MutexLock lock(mutex_);
//       ++count_;
//       changed_.NotifyAll();
//     }
//     void AwaitTen() {
//       MutexLock lock(mutex_);
//       while (count_ < 10) changed_.Wait(mutex_);
//     }
//
//    private:
//     Mutex mutex_;
//     CondVar changed_;
//     int count_ ABSL_GUARDED_BY(mutex_) = 0;
//   };
//
// These classes wrap the standard library's and not Abseil's, for two reasons.
// The constructors of absl::MutexLock differ between the supported releases.
// The thread sanitizer does not see the locks of a libabsl that is not
// instrumented, so it reports races where there are none.
#ifndef LOCKSTEP_BASE_MUTEX_H_
#define LOCKSTEP_BASE_MUTEX_H_

#include <chrono>              // NOLINT: std::condition_variable speaks chrono
#include <condition_variable>  // NOLINT: wrapped here, used nowhere else
#include <mutex>               // NOLINT: wrapped here, used nowhere else

#include "absl/base/thread_annotations.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Thread-safety: thread-safe.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  [[nodiscard]] bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    return mutex_.try_lock();
  }
  // Tells Clang's analysis that this thread holds the mutex, in code that only
  // runs then. It checks nothing.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex from construction to destruction.
// Thread-safety: only the thread that made it uses it.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }

  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Releases a held mutex from construction to destruction, and locks it again
// also after an exception. It is for the slow part of a function.
// Thread-safety: only the thread that made it uses it.
class ABSL_SCOPED_LOCKABLE MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) ABSL_UNLOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_.Unlock();
  }
  ~MutexUnlock() ABSL_UNLOCK_FUNCTION() { mutex_.Lock(); }

  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits may end early, so call them in a loop over the condition.
// Thread-safety: thread-safe.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // Returns true if `deadline` has passed.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool late =
        condition_.wait_until(lock, deadline) == std::cv_status::timeout;
    lock.release();
    return late;
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_MUTEX_H_
