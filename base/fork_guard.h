// These classes see to what becomes of objects in a forked child. A ForkGuard
// notices that a process is a fork of the one that made an object. Threads do
// not survive a fork: an object that has some must not wait for them in the
// child, nor touch what they may have held locked.
//
//   absl::Status Pool::Run() {
//     if (guard_.forked()) return absl::FailedPreconditionError(...);
//     ...
//   }
//   Pool::~Pool() {
//     if (guard_.forked()) KeepForEver(std::move(state_));
//   }
#ifndef LOCKSTEP_BASE_FORK_GUARD_H_
#define LOCKSTEP_BASE_FORK_GUARD_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "lockstep/base/language.h"

namespace lockstep {

// Thread-safety: thread-safe.
class ForkGuard {
 public:
  ForkGuard();

  // Returns whether this process was forked since the guard was made. It is a
  // load and no call of the system.
  bool forked() const;

 private:
  int64_t forks_;
};

// A program that this process starts does not get it.
void CloseOnExec(int fd);

// While it lives, children that are forked do not keep the descriptor: it is
// closed in them at once. The other end of a connection would otherwise see its
// end only when the last such child has ended. It must go before the descriptor
// is closed here.
class ClosedInForks {
 public:
  explicit ClosedInForks(int fd);
  ~ClosedInForks();

  ClosedInForks(const ClosedInForks&) = delete;
  ClosedInForks& operator=(const ClosedInForks&) = delete;

 private:
  friend class ForkGuard;
  struct List;

  // The number is -1 in a child, where this is no longer in the list of all.
  int fd_;
  ClosedInForks* previous_ = nullptr;
  ClosedInForks* next_ = nullptr;
};

// Lets go of `object` without destroying it. The leak checker finds it, and
// says nothing.
void KeepForEver(std::shared_ptr<const void> object);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_FORK_GUARD_H_
