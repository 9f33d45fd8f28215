#include "lockstep/base/stop_signals.h"

#include <sched.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <utility>

namespace lockstep {
namespace {

// The function that a signal calls, the process in which signals are noted, the
// number of handlers that may use the function now, and whether there was a
// signal. They are atomics because a handler may run on any thread. They use
// the default memory order, so a handler that finds the function finds it
// complete.
std::atomic<const std::function<void()>*> to_call{nullptr};
std::atomic<pid_t> noted_in{0};
std::atomic<int> in_handlers{0};
std::atomic<bool> was_signaled{false};

void NoteSignal(int signal) {
  if (noted_in.load() != ::getpid()) {
    ::raise(signal);  // SA_RESETHAND has set the default action
    return;
  }
  ++in_handlers;
  const std::function<void()>* const call = to_call.load();
  if (call != nullptr) {
    was_signaled = true;
    if (*call) (*call)();
  }
  --in_handlers;
}

}  // namespace

StopSignals::StopSignals(std::function<void()> at_signal)
    : at_signal_(std::move(at_signal)) {
  was_signaled = false;
  to_call = &at_signal_;
  noted_in = ::getpid();
  struct sigaction action = {};
  action.sa_handler = NoteSignal;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  ::sigaction(SIGTERM, &action, nullptr);
  struct sigaction interrupt = {};
  ::sigaction(SIGINT, &action, &interrupt);
  // A shell starts what runs in the background with SIGINT ignored.
  if (interrupt.sa_handler == SIG_IGN) {
    ::sigaction(SIGINT, &interrupt, nullptr);
  }
}

StopSignals::~StopSignals() {
  to_call = nullptr;
  // Handlers take no longer than a few instructions.
  while (in_handlers.load() > 0) ::sched_yield();
}

bool StopSignals::requested() const { return was_signaled; }

}  // namespace lockstep
