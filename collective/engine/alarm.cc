#include "lockstep/collective/engine/alarm.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>  // NOLINT: SteadyTime
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/base/check.h"
#include "lockstep/base/system_error.h"

namespace lockstep::internal_collective {

absl::StatusOr<std::unique_ptr<Alarm>> Alarm::Create() {
  const int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  if (fd < 0) return SystemError(errno, "can't make a timer");
  return std::unique_ptr<Alarm>(new Alarm(fd));
}

Alarm::~Alarm() { close(fd_); }

void Alarm::Set(SteadyTime when) {
  // The timer has the same clock as SteadyTime. Zero would switch it off.
  const auto since_boot = std::max<SteadyTime::duration>(
      when.time_since_epoch(), std::chrono::nanoseconds(1));
  itimerspec spec = {};
  spec.it_value = absl::ToTimespec(absl::FromChrono(since_boot));
  LOCKSTEP_CHECK(timerfd_settime(fd_, TFD_TIMER_ABSTIME, &spec, nullptr) == 0);
}

void Alarm::Sleep() {
  uint64_t times;
  while (read(fd_, &times, sizeof(times)) < 0) LOCKSTEP_CHECK(errno == EINTR);
}

}  // namespace lockstep::internal_collective
