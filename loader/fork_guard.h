// Notices that a process is a fork of the one that made an object. Threads do
// not survive a fork, so a loader must not wait for its own there. Internal.
#ifndef LOCKSTEP_LOADER_FORK_GUARD_H_
#define LOCKSTEP_LOADER_FORK_GUARD_H_

#include <cstdint>

#include "lockstep/base/language.h"

namespace lockstep::internal_loader {

class ForkGuard {
 public:
  ForkGuard();

  // Whether this process was forked since the guard was made. A load, no call
  // of the system.
  bool forked() const;

 private:
  int64_t forks_;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_FORK_GUARD_H_
