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
// They are the standard library's, and not Abseil's, for two reasons: the
// constructors of absl::MutexLock differ between the releases that are
// supported, and the thread sanitizer sees the locks of an uninstrumented
// libabsl not at all, and so reports races where there are none.
#ifndef LOCKSTEP_BASE_MUTEX_H_
#define LOCKSTEP_BASE_MUTEX_H_

#include <chrono>              // NOLINT: std::condition_variable speaks chrono
#include <condition_variable>  // NOLINT: wrapped here, used nowhere else
#include <mutex>               // NOLINT: wrapped here, used nowhere else

#include "absl/base/thread_annotations.h"
#include "lockstep/base/language.h"

namespace lockstep {

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

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex from construction to destruction.
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

// Lets go of a mutex that is held, from construction to destruction: for the
// slow part of a function, also where that throws.
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

// Waits may end early: call them in a loop over the condition.
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

  // Returns whether `deadline` has passed.
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
