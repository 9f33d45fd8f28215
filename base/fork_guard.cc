#include "lockstep/base/fork_guard.h"

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace lockstep {
namespace {

// How many forks lie between the process that loaded this code and this one.
std::atomic<int64_t> forks{0};

void OnForkInChild() { forks.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

ForkGuard::ForkGuard() {
  static const int registered = pthread_atfork(nullptr, nullptr, OnForkInChild);
  static_cast<void>(registered);
  forks_ = forks.load(std::memory_order_relaxed);
}

bool ForkGuard::forked() const {
  return forks.load(std::memory_order_relaxed) != forks_;
}

void KeepForEver(std::shared_ptr<const void> object) {
  struct Kept {
    std::shared_ptr<const void> object;
    Kept* next;
  };
  static std::atomic<Kept*> list{nullptr};
  Kept* const kept = new Kept{std::move(object), nullptr};
  kept->next = list.load();
  while (!list.compare_exchange_weak(kept->next, kept)) {
  }
}

}  // namespace lockstep
