// An EagerWait looks for a moment for what a thread waits for, before the
// thread sleeps.
//
//   eager_.Await([&] { return counter.load() != seen; }, [&] { Sleep(); });
//
// To be woken takes tens of microseconds, and more than what is awaited often
// takes. But where somebody else needs the core, and maybe the very thread that
// this one waits for, a look only holds it up. Nothing tells a thread whether
// that is so, except for looks in vain before waits that were short all the
// same: each of them makes more of the next waits sleep at once. No look yields
// the core. Beside threads that compute, a yield lasts milliseconds.
#ifndef LOCKSTEP_COLLECTIVE_EAGER_WAIT_H_
#define LOCKSTEP_COLLECTIVE_EAGER_WAIT_H_

#include <algorithm>
#include <chrono>  // NOLINT: base/steady_time.h speaks chrono

#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"

namespace lockstep::internal_collective {

// An EagerWait remembers how the last looks of a thread went.
// Thread-safety: thread-compatible.
class EagerWait {
 public:
  // Calls `happened` until it returns true, for kLook at most. Then it calls
  // `sleep`, unless that has happened. Calls `sleep` at once if looks were in
  // vain.
  template <typename Happened, typename Sleep>
  void Await(const Happened& happened, const Sleep& sleep) {
    if (!Due()) return sleep();
    const SteadyTime begin = SteadyNow();
    do {
      if (happened()) return Found();
    } while (SteadyNow() < begin + kLook);
    sleep();
    FoundNothing(SteadyNow() - begin);
  }

  // The steps of Await. Due returns true if the next wait begins with a look,
  // which either finds something, or nothing before a sleep. `waited` is the
  // time of both. After a long wait nothing is learned: the look was a small
  // part of it. Otherwise the next wait after one look in vain sleeps at once,
  // and up to 63 waits do after more of them.
  bool Due() { return skipped_ == 0 || skipped_-- == 0; }
  void Found() { in_vain_ = 0; }
  void FoundNothing(SteadyTime::duration waited) {
    if (waited > kLongWait) return;
    in_vain_ = std::min(in_vain_ + 1, 6);
    skipped_ = (1 << in_vain_) - 1;
  }

  static constexpr std::chrono::microseconds kLook{50};
  static constexpr std::chrono::milliseconds kLongWait{1};

 private:
  int in_vain_ = 0;  // looks in a row
  int skipped_ = 0;  // the number of waits that sleep at once
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_EAGER_WAIT_H_
