// NoSigpipe protects a thread from SIGPIPE. This signal ends a process that
// writes to a pipe or a socket whose other end is closed. With the guard, the
// write fails with EPIPE instead.
//
//   const NoSigpipe guard;
//   const ssize_t written = ::write(pipe, bytes.data(), bytes.size());
#ifndef LOCKSTEP_BASE_NO_SIGPIPE_H_
#define LOCKSTEP_BASE_NO_SIGPIPE_H_

#include <signal.h>

#include <ctime>

#include "lockstep/base/language.h"

namespace lockstep {

// Blocks SIGPIPE in this thread, from construction to destruction. A SIGPIPE
// that was pending before stays pending.
// Requires: the thread that made the guard destroys it.
// Thread-safety: each thread has its own guard.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    pending_before_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    const timespec now = {};
    if (!pending_before_) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool pending_before_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_NO_SIGPIPE_H_
