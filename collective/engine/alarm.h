// An Alarm is something on which one thread sleeps until a time. Other threads
// set the time, and do not wake the sleeper by that:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Alarm> alarm,
//                             Alarm::Create());
//   alarm->Set(After(absl::Milliseconds(1)));  // in any thread
//   alarm->Sleep();                            // in its own one, 1 ms later
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_ALARM_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_ALARM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"

namespace lockstep::internal_collective {

// Thread-safety: any thread may call Set, and one thread at a time Sleep.
class Alarm {
 public:
  // Returns an alarm that is not set.
  static absl::StatusOr<std::unique_ptr<Alarm>> Create();
  ~Alarm();

  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  // Sets the time, in place of the one that was set before. A time in the past
  // means now.
  void Set(SteadyTime when);

  // Sleeps until the time that was set last has come. Returns at once if one
  // has come since the last Sleep.
  void Sleep();

 private:
  explicit Alarm(int fd) : fd_(fd) {}

  const int fd_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_ALARM_H_
