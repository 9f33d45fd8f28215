// A Watchdog ends this process if it is not done in time, since calls of the
// system, of a name service or of a driver may wait for ever.
//
//   Watchdog watchdog("lockstep doctor", timeout, absl::Seconds(10),
//                     "reading variables");
//   watchdog.Begin("looking at the GPUs");
#ifndef LOCKSTEP_TOOLS_DOCTOR_WATCHDOG_H_
#define LOCKSTEP_TOOLS_DOCTOR_WATCHDOG_H_

#include <string>
#include <thread>  // NOLINT: it must run while others hang

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/mutex.h"

namespace lockstep {

// Thread-safety: thread-safe.
class Watchdog {
 public:
  // When `timeout` and then `grace` have passed, it writes to stderr what was
  // not done within `timeout`, and ends the process with code 1. `name` is that
  // of the program, and `what` says what it does at first.
  Watchdog(absl::string_view name, absl::Duration timeout, absl::Duration grace,
           absl::string_view what);
  ~Watchdog();

  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Says what this process does from now on.
  void Begin(absl::string_view what);

 private:
  void Watch();

  const std::string name_;
  const absl::Duration timeout_, grace_;
  Mutex mutex_;
  CondVar changed_;
  std::string what_ ABSL_GUARDED_BY(mutex_);
  bool is_done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DOCTOR_WATCHDOG_H_
