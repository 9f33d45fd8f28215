#include "lockstep/tools/cli/remove_at_signal.h"

#include <pthread.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <system_error>  // NOLINT: what std::filesystem reports
#include <thread>        // NOLINT: a thread of its own
#include <utility>

namespace lockstep {
namespace {

// Tells the thread that the work is done.
int DoneSignal() { return SIGRTMIN; }

bool IsIgnored(int signal) {
  struct sigaction action;
  return sigaction(signal, nullptr, &action) == 0 &&
         action.sa_handler == SIG_IGN;
}

}  // namespace

RemoveAtSignal::RemoveAtSignal(std::string path) : path_(std::move(path)) {
  sigemptyset(&signals_);
  sigaddset(&signals_, DoneSignal());
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!IsIgnored(signal)) sigaddset(&signals_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  thread_ = std::thread([this] { Await(); });
}

RemoveAtSignal::~RemoveAtSignal() {
  pthread_kill(thread_.native_handle(), DoneSignal());
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void RemoveAtSignal::Await() const {
  int signal = 0;
  if (sigwait(&signals_, &signal) != 0 || signal == DoneSignal()) return;
  std::error_code error;
  std::filesystem::remove_all(path_, error);
  // The process ends as it would have ended without this object.
  ::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  raise(signal);
}

}  // namespace lockstep
