// A counter in memory that threads and processes share. They can wait until it
// changes.
//
//   tail.Add(bytes);                                   // in one thread
//
//   for (uint32_t seen; (seen = tail.Load()) == old && !stop;)  // in another
//     tail.AwaitChange(seen, stop);
//
//   stop = true;                                       // ends the wait
//   tail.WakeSleepers();
#ifndef LOCKSTEP_COLLECTIVE_SHM_SHARED_WORD_H_
#define LOCKSTEP_COLLECTIVE_SHM_SHARED_WORD_H_

#include <atomic>
#include <cstdint>

#include "lockstep/base/language.h"

namespace lockstep::internal_collective {

// A counter, which wraps around.
//
// Requires: its memory is zeroed, which is a counter that stands at 0.
// Guarantees: data that was written before an Add is visible after a Load that
// sees the Add.
// Thread-safety: thread-safe, also between processes.
class SharedWord {
 public:
  // Returns the value. The acquire pairs with the fetch_add of Add.
  uint32_t Load() const { return value_.load(std::memory_order_acquire); }

  // Adds to the counter, and wakes the threads that wait. It makes a system
  // call only if one of them sleeps.
  void Add(uint32_t amount) {
    // This is a store-load pairing. Add changes value_ and then loads
    // sleepers_. AwaitChange changes sleepers_ and then loads value_. Both need
    // sequential consistency, so that at least one of them sees the other.
    value_.fetch_add(amount);
    WakeSleepers();
  }

  // Waits until the counter is no longer at `seen`, or until `stop` is set and
  // the sleepers are woken. It also returns without a reason, at least some
  // times a second, so that the caller can look at other things.
  void AwaitChange(uint32_t seen, const std::atomic<bool>& stop);

  // Makes the threads that sleep in AwaitChange return. A caller that has set
  // `stop` did so with sequential consistency, for the same pairing as in Add.
  void WakeSleepers() {
    if (sleepers_.load() != 0) Wake();
  }

 private:
  void Sleep(uint32_t seen, const std::atomic<bool>& stop);
  void Wake();

  std::atomic<uint32_t> value_{0};
  // The number of threads that sleep, or are about to. A thread that is killed
  // while it sleeps is counted for ever, which costs the others a system call
  // for each Add and nothing else.
  std::atomic<uint32_t> sleepers_{0};

  static_assert(std::atomic<uint32_t>::is_always_lock_free &&
                    sizeof(std::atomic<uint32_t>) == sizeof(uint32_t),
                "processes share it, and the kernel waits on it");
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_SHM_SHARED_WORD_H_
