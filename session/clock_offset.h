// MeasureClockOffset measures how far the clock of this rank's host is from the
// clock of rank 0, so that the times of different ranks can be compared.
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

// The result of a measurement.
struct ClockOffset {
  double seconds = 0;  // this rank's clock minus rank 0's
  double error = 0;    // the largest possible error of `seconds`
  int64_t began = 0;  // what rank 0's clock showed first; the same on all ranks
};

// Measures the offset. All ranks must call it, with a group that moves the
// host's memory. In each round, rank 0 reads its clock after a barrier and
// broadcasts the time. A rank reads its own clock before and after the round,
// so that moment is between its two times. Several rounds make the interval
// smaller. `clock` returns nanoseconds.
absl::StatusOr<ClockOffset> MeasureClockOffset(
    Communicator& group, const std::function<int64_t()>& clock);

// The same, with the system clock of the host.
absl::StatusOr<ClockOffset> MeasureClockOffset(Communicator& group);

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_CLOCK_OFFSET_H_
