// An operation that was issued, with its state for the lanes and the engine.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_ISSUED_WORK_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_ISSUED_WORK_H_

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/work.h"

namespace lockstep::internal_collective {

// An operation that was issued.
// Thread-safety: the mutex of the group guards all fields that can change.
class IssuedWork : public WorkState {
 public:
  explicit IssuedWork(Operation&& operation)
      : op(std::move(operation)),
        issued(SteadyNow()),
        expires(After(op.deadline, issued)) {}

  const Operation op;
  const SteadyTime issued;
  const SteadyTime expires;
  uint64_t number = 0;  // of a collective, in its lane
  uint64_t ticket = 0;  // in the log
  int open = 1;         // lanes that it waits in: two for a SendRecv
  uint64_t waiter = 0;  // a thread that waits for it without an end, or 0
  absl::Status result;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_ISSUED_WORK_H_
