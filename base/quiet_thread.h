// Starts the threads of this library. They block the signals of the host's
// process, so that signal handlers run on the threads where the host expects
// them. Signals for a mistake of the thread itself are not blocked: the host's
// handler reports the crash, while a thread that blocks them would die without
// a message. An exception in a thread ends the process (end_process.h).
#ifndef LOCKSTEP_BASE_QUIET_THREAD_H_
#define LOCKSTEP_BASE_QUIET_THREAD_H_

#include <pthread.h>

#include <csignal>
#include <thread>  // NOLINT: a library's own thread
#include <utility>

#include "absl/status/statusor.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/end_process.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_base {

// Blocks these signals in the calling thread while it exists, in addition to
// those that the host has blocked. Threads that are started meanwhile inherit
// this.
// Thread-safety: use it on one thread.
class HostSignalsBlocked {
 public:
  HostSignalsBlocked() {
    sigset_t signals;
    sigfillset(&signals);
    for (const int own :
         {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP}) {
      sigdelset(&signals, own);
    }
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  ~HostSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  HostSignalsBlocked(const HostSignalsBlocked&) = delete;
  HostSignalsBlocked& operator=(const HostSignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Starts a thread. `top -H` and debuggers show its name, which has at most 15
// characters. Returns RESOURCE_EXHAUSTED if the system has no thread or memory
// left.
template <typename Body>
absl::StatusOr<std::thread> StartQuietThread(const char* name, Body body) {
  const HostSignalsBlocked blocked;
  return CatchAll("starting a thread", [&]() -> absl::StatusOr<std::thread> {
    std::thread thread(
        [name, body = std::move(body)]() mutable { RunOrEnd(name, body); });
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  });
}

}  // namespace lockstep::internal_base

#endif  // LOCKSTEP_BASE_QUIET_THREAD_H_
