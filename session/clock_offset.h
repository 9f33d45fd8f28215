// MeasureClockOffset finds out how far the clock of this rank's host is from
// that of rank 0, so that times that ranks have written down can be compared.
// Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const ClockOffset clock,
//                             MeasureClockOffset(group));
//   const absl::Time as_rank_0 = mine - absl::Seconds(clock.seconds);
#ifndef LOCKSTEP_SESSION_CLOCK_OFFSET_H_
#define LOCKSTEP_SESSION_CLOCK_OFFSET_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"

namespace lockstep::internal_session {

struct ClockOffset {
  double seconds = 0;  // this rank's clock less that of rank 0
  double error = 0;    // at most so many more or fewer
};

// All ranks call it, over a group that moves the host's memory. Each round is a
// barrier, behind which rank 0 looks at its clock, and a broadcast of what it
// has seen. So a rank's own times before and after a round enclose that moment,
// and the rounds together enclose it well. `clock` returns nanoseconds.
absl::StatusOr<ClockOffset> MeasureClockOffset(
    Communicator& group, const std::function<int64_t()>& clock);

// Measures by the clock of the host.
absl::StatusOr<ClockOffset> MeasureClockOffset(Communicator& group);

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_CLOCK_OFFSET_H_
