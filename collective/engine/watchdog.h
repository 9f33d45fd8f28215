// A Watchdog watches the first operation of a lane, or the making of a group,
// and says when to report it to rank 0:
//
//   Watchdog watchdog(timing, absl::Seconds(1), /*asks_why=*/true);
//   watchdog.Start(SteadyNow());                    // the operation began
//   const Watchdog::Orders orders = watchdog.OnTick(tick);  // every 50 ms
//   if (orders.report_late) control->ReportLate(...);
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_WATCHDOG_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_WATCHDOG_H_

#include <algorithm>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/control/failure_timing.h"

namespace lockstep::internal_collective {

// The watchdog of one lane, or of a group that is being made.
// Thread-safety: thread-compatible.
class Watchdog {
 public:
  // The last report to rank 0 about the operation.
  //
  //   | from     | to       | when                                            |
  //   |----------|----------|-------------------------------------------------|
  //   | kNothing | kLate    | it is slow, or its transport has failed         |
  //   | kNothing | kExpired | its or a later one's deadline has passed        |
  //   | kLate    | kExpired | its or a later one's deadline has passed        |
  //   | kLate    | kNothing | ForgetLate: it is to be reported once more      |
  //   | any      | kNothing | Start: the next operation is watched            |
  enum class Reported { kNothing, kLate, kExpired };

  // The circumstances at a tick.
  struct Tick {
    SteadyTime now;
    bool expired = false;            // the lane's first deadline has passed
    bool failure_is_coming = false;  // the group fails after other operations
    // Rank 0 is this rank, and has yet to judge the operation.
    bool judged_here = false;
    absl::Duration ran;  // the control plane's clock
  };

  // The actions that the caller is to take now, in this order.
  struct Orders {
    // Rank 0 has not decided: fail the group without it, and do nothing else.
    bool decide_alone = false;
    // The operation with an error never ends: fail the group with the failure
    // that is coming, and do nothing else.
    bool fail_as_coming = false;
    // Report the error to rank 0, which believes it if no rank knows a better
    // cause.
    bool report_error = false;
    bool report_late = false;  // to rank 0, which asks the others
  };

  // An operation that takes longer than `slow` is late. If `asks_why` is true,
  // one that fails is late at once, so that rank 0 asks the others for the
  // reason. `asks_why` is false for the making of a group, in which the others
  // have issued nothing that rank 0 could compare.
  // Requires: `timing` outlives this.
  Watchdog(const FailureTiming& timing, absl::Duration slow, bool asks_why)
      : timing_(timing), slow_(slow), asks_why_(asks_why) {}

  // Watches another operation from the time `since` on. An error stays.
  void Start(SteadyTime since) {
    since_ = since;
    reported_ = Reported::kNothing;
  }

  // Watches the operation from `since` on, if that is earlier.
  void CountFrom(SteadyTime since) { since_ = std::min(since_, since); }

  // Returns the time at which the operation becomes slow.
  SteadyTime BecomesSlowAt() const { return After(slow_, since_); }

  // Lets a late operation be reported once more.
  void ForgetLate() {
    if (reported_ == Reported::kLate) reported_ = Reported::kNothing;
  }

  // Takes in an error of the transport. The first one stays for good.
  void SetError(const absl::Status& error, SteadyTime now);
  const absl::Status& error() const { return error_; }

  Reported reported() const { return reported_; }

  // Returns the actions that are due at this tick.
  Orders OnTick(const Tick& tick);

 private:
  bool MayReportError(const Tick& tick) const;

  const FailureTiming& timing_;
  const absl::Duration slow_;
  const bool asks_why_;

  SteadyTime since_ = {};
  Reported reported_ = Reported::kNothing;
  absl::Duration expired_reported_at_;  // on the control plane's clock
  absl::Status error_;
  SteadyTime error_since_ = {};
  bool error_reported_ = false;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_WATCHDOG_H_
