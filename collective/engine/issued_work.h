// An operation that was issued, with its state for the lanes and the group.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_ISSUED_WORK_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_ISSUED_WORK_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/operation.h"

namespace lockstep::internal_collective {

class Group;

// An operation that was issued. A Work refers to it.
// Thread-safety: the mutex of the group guards all fields that can change.
class IssuedWork {
 public:
  IssuedWork(std::shared_ptr<Group> in_group, Operation&& operation)
      : group(std::move(in_group)),
        op(std::move(operation)),
        issued(SteadyNow()),
        counts_from(After(op.waits_within, issued)),
        expires(After(op.deadline, counts_from)) {}

  // Takes in that a caller waits for it from now on, or for a later one.
  void CountFrom(SteadyTime now) {
    if (counts_from <= now) return;
    counts_from = now;
    expires = After(op.deadline, now);
  }

  // Returns true if this process was forked from the one that issued the
  // operation. It may be called without the mutex.
  bool forked() const { return fork_guard_.forked(); }

  const std::shared_ptr<Group> group;
  const Operation op;
  const SteadyTime issued;
  SteadyTime counts_from;  // it can't be slow before
  SteadyTime expires;
  uint64_t number = 0;  // of a collective, in its lane
  uint64_t ticket = 0;  // in the log
  int open = 1;         // lanes that it waits in; SendRecv has two
  uint64_t waiter = 0;  // a thread that waits for it without an end, or 0
  absl::Status result;

 private:
  const ForkGuard fork_guard_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_ISSUED_WORK_H_
