// A counter in memory that threads and processes share, and waiting for it to
// move.
//
//   tail.Add(bytes);                                   // here
//
//   for (uint32_t seen; (seen = tail.Load()) == old && !stop;)  // there
//     tail.AwaitChange(seen, stop);
//
//   stop = true;                                       // to end that
//   tail.WakeSleepers();
#ifndef LOCKSTEP_COLLECTIVE_SHM_SHARED_WORD_H_
#define LOCKSTEP_COLLECTIVE_SHM_SHARED_WORD_H_

#include <atomic>
#include <cstdint>

#include "lockstep/base/language.h"

namespace lockstep::internal_collective {

// Zeroed memory is one that stands at 0. What was written before Add is seen
// after a Load that sees the Add.
class SharedWord {
 public:
  uint32_t Load() const { return value_.load(std::memory_order_acquire); }

  // Wraps around. Wakes those that wait; a system call only if any sleeps.
  void Add(uint32_t amount) {
    // Either this sees the sleeper, or the sleeper sees the new value: both
    // write first and read then, in sequential consistency.
    value_.fetch_add(amount);
    WakeSleepers();
  }

  // Returns soon after the counter is no longer at `seen`, or `stop` is set and
  // sleepers are woken; or earlier, at least some times a second, for the
  // caller to look at other things.
  void AwaitChange(uint32_t seen, const std::atomic<bool>& stop);

  // Those that sleep return from AwaitChange.
  void WakeSleepers() {
    if (sleepers_.load() != 0) Wake();
  }

 private:
  void Wake();

  std::atomic<uint32_t> value_{0};
  // One that is killed while it sleeps is counted for ever, which costs the
  // others a system call and nothing else.
  std::atomic<uint32_t> sleepers_{0};

  static_assert(std::atomic<uint32_t>::is_always_lock_free &&
                    sizeof(std::atomic<uint32_t>) == sizeof(uint32_t),
                "processes share it, and the kernel waits on it");
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_SHM_SHARED_WORD_H_
