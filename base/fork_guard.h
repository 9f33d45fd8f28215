// These classes handle objects whose process forks. A ForkGuard tells whether
// this process is a fork of the process that made an object. Threads do not
// survive a fork. So in the child, an object that has threads must not wait for
// them, and must not touch data whose locks they may have held.
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

// Remembers the process that made it.
// Thread-safety: thread-safe.
class ForkGuard {
 public:
  ForkGuard();

  // Returns true if this process was forked from the one that made the guard.
  // Costs one atomic load and no system call.
  bool forked() const;

 private:
  int64_t forks_;
};

// Keeps the descriptor from programs that this process starts.
void CloseOnExec(int fd);

// While this object exists, a forked child closes the descriptor at once.
// Otherwise the other end of a connection would see its end only after the last
// such child has ended.
// Requires: this object is destroyed before the descriptor is closed.
// Thread-safety: thread-safe.
class ClosedInForks {
 public:
  // Does nothing if `fd` is negative, since there is no descriptor then.
  explicit ClosedInForks(int fd);
  ~ClosedInForks();

  // Ends the connections among the descriptors of all these objects, for a
  // process that is about to end. Allocates no memory.
  static void ShutDownAll();

  ClosedInForks(const ClosedInForks&) = delete;
  ClosedInForks& operator=(const ClosedInForks&) = delete;

 private:
  friend class ForkGuard;
  struct List;

  // The descriptor; -1 in a child, where this object is no longer in the list.
  int fd_;
  ClosedInForks* previous_ = nullptr;
  ClosedInForks* next_ = nullptr;
};

// Keeps `object` alive until the process ends. The object stays reachable, so
// the leak checker does not report it.
void KeepForEver(std::shared_ptr<const void> object);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_FORK_GUARD_H_
