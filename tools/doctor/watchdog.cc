#include "lockstep/tools/doctor/watchdog.h"

#include <unistd.h>

#include <string>
#include <thread>  // NOLINT: it must run while others hang

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/base/write_all.h"

namespace lockstep {

Watchdog::Watchdog(absl::string_view name, absl::Duration timeout,
                   absl::Duration grace, absl::string_view what)
    : name_(name),
      timeout_(timeout),
      grace_(grace),
      what_(what),
      thread_([this] { Watch(); }) {}

Watchdog::~Watchdog() {
  {
    MutexLock lock(mutex_);
    is_done_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void Watchdog::Begin(absl::string_view what) {
  MutexLock lock(mutex_);
  what_ = std::string(what);
}

void Watchdog::Watch() {
  const SteadyTime until = After(timeout_ + grace_);
  MutexLock lock(mutex_);
  while (!is_done_ && SteadyNow() < until) {
    changed_.WaitUntil(mutex_, until);
  }
  if (is_done_) return;
  const std::string text = absl::StrCat(
      name_, ": FAIL: not done within ", absl::FormatDuration(timeout_), ": ",
      what_, "; find out why this hangs, or set a longer --timeout\n");
  WriteAll(STDERR_FILENO, text);
  _exit(1);
}

}  // namespace lockstep
