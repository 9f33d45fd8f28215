// Threads of a library in a host's process: they get none of its signals, so
// that handlers run where the host expects them. Those for a mistake of the
// thread itself are let through: it is the host's handler that reports a crash,
// and a thread that blocks them dies without a word.
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_QUIET_THREAD_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_QUIET_THREAD_H_

#include <pthread.h>

#include <csignal>
#include <thread>  // NOLINT: a library's own thread
#include <utility>

#include "absl/status/statusor.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_collective {

// What threads that are begun while it lives inherit, beside what the host has
// blocked itself.
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

// The name, of at most 15 characters, is what `top -H` and debuggers show.
// RESOURCE_EXHAUSTED when the system has no thread or memory left.
template <typename Body>
absl::StatusOr<std::thread> StartQuietThread(const char* name, Body body) {
  const HostSignalsBlocked blocked;
  return CatchAll("starting a thread", [&]() -> absl::StatusOr<std::thread> {
    std::thread thread(std::move(body));
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  });
}

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_QUIET_THREAD_H_
