// Something for one thread to sleep on until a time that others set, who don't
// wake it by that:
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

class Alarm {
 public:
  static absl::StatusOr<std::unique_ptr<Alarm>> Create();
  ~Alarm();

  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  // In place of what was set before; a time that is over is now. From any
  // thread.
  void Set(SteadyTime when);

  // Until the time that was set last has come; at once if it came since the
  // last Sleep.
  void Sleep();

 private:
  explicit Alarm(int fd) : fd_(fd) {}

  const int fd_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_ALARM_H_
