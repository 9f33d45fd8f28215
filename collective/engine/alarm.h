// An Alarm lets one thread sleep until a time that other threads set. Setting a
// time in the future does not wake the sleeper:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Alarm> alarm,
//                             Alarm::Create());
//   alarm->Set(After(absl::Milliseconds(1)));  // in any thread
//   alarm->Sleep();                            // in its own thread, 1 ms later
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_ALARM_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_ALARM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"

namespace lockstep::internal_collective {

// A timer on which one thread sleeps.
// Thread-safety: any thread may call Set, and one thread at a time Sleep.
class Alarm {
 public:
  // Returns an alarm that is not set.
  static absl::StatusOr<std::unique_ptr<Alarm>> Create();
  ~Alarm();

  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  // Sets the time, which replaces the one that was set before. A time in the
  // past means now.
  void Set(SteadyTime when);

  // Sleeps until the time that was set last has come. Returns at once if it has
  // come already, and no Sleep has returned since.
  void Sleep();

 private:
  explicit Alarm(int fd) : fd_(fd) {}

  const int fd_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_ALARM_H_
