#include "lockstep/collective/engine/watchdog.h"

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lockstep::internal_collective {

void Watchdog::SetError(const absl::Status& error, SteadyTime now) {
  if (!error_.ok()) return;
  error_ = error;
  error_since_ = now;
}

// Returns true if the error has waited long enough for a better reason.
bool Watchdog::MayReportError(const Tick& tick) const {
  if (error_.ok() || (error_reported_ && !tick.failure_is_coming)) return false;
  const bool is_mismatch = asks_why_ && absl::IsFailedPrecondition(error_);
  return Passed(error_since_, is_mismatch ? timing_.mismatch : timing_.reason,
                tick.now);
}

Watchdog::Orders Watchdog::OnTick(const Tick& tick) {
  Orders orders;
  if (reported_ == Reported::kExpired && !tick.judged_here &&
      tick.ran - expired_reported_at_ >= timing_.verdict) {
    orders.decide_alone = true;
    return orders;
  }
  if (MayReportError(tick)) {
    // An operation with an error never ends, so the failure need not wait for
    // it.
    if (tick.failure_is_coming) {
      orders.fail_as_coming = true;
      return orders;
    }
    error_reported_ = orders.report_error = true;
  }
  const bool late =
      (asks_why_ && !error_.ok()) || Passed(since_, slow_, tick.now);
  if (tick.expired && reported_ != Reported::kExpired) {
    reported_ = Reported::kExpired;
    expired_reported_at_ = tick.ran;
    orders.report_late = true;
  } else if (!tick.expired && late && reported_ == Reported::kNothing) {
    reported_ = Reported::kLate;
    orders.report_late = true;
  }
  return orders;
}

}  // namespace lockstep::internal_collective
