// A ForkGuard notices that a process is a fork of the one that made an object.
// Threads do not survive a fork: an object that has some must not wait for them
// in the child, nor touch what they may have held locked.
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

  // Whether this process was forked since the guard was made. It is a load and
  // no call of the system.
  bool forked() const;

 private:
  int64_t forks_;
};

// Lets go of `object` without destroying it. The leak checker finds it, and
// says nothing.
void KeepForEver(std::shared_ptr<const void> object);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_FORK_GUARD_H_
