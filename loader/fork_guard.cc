#include "lockstep/loader/fork_guard.h"

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace lockstep::internal_loader {
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

}  // namespace lockstep::internal_loader
