#include "lockstep/collective/shm/shared_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <ctime>

#include "lockstep/collective/eager_wait.h"

namespace lockstep::internal_collective {
namespace {

// A wait begins with this number of loads, which takes about a microsecond.
constexpr int kLooks = 64;
// The kernel does not fall asleep if the value has changed, but it does not
// know `stop`: the wake of a thread that sets it just before the sleep is lost.
// So each sleep is bounded.
constexpr timespec kLongestSleep = {0, 50'000'000};

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void SharedWord::AwaitChange(uint32_t seen, const std::atomic<bool>& stop) {
  for (int i = 0; i < kLooks; ++i) {
    if (Load() != seen) return;
    Pause();
  }
  // Each thread knows how it went the last times that it has waited.
  static thread_local EagerWait eager;
  eager.Await(
      [&] {
        Pause();
        return Load() != seen || stop.load();
      },
      [&] { Sleep(seen, stop); });
}

void SharedWord::Sleep(uint32_t seen, const std::atomic<bool>& stop) {
  sleepers_.fetch_add(1);
  // Both loads are sequentially consistent, and so is the fetch_add before
  // them: a thread that changes value_ or `stop` looks for sleepers afterwards.
  if (value_.load() == seen && !stop.load()) {
    syscall(SYS_futex, &value_, FUTEX_WAIT, seen, &kLongestSleep, nullptr, 0);
  }
  sleepers_.fetch_sub(1);
}

void SharedWord::Wake() {
  syscall(SYS_futex, &value_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace lockstep::internal_collective
