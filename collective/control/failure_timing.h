// The times that decide which rank is blamed for a failure, except those that
// users set: world.h has when an operation is slow or expires, and when a
// silent rank is lost.
#ifndef LOCKSTEP_COLLECTIVE_CONTROL_FAILURE_TIMING_H_
#define LOCKSTEP_COLLECTIVE_CONTROL_FAILURE_TIMING_H_

#include "absl/time/time.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_collective {

// Time goes to the right. A rank acts at its ticks, which are 50 ms apart.
//
//   An operation expires, and is reported to rank 0, which answers or is
//   silent:
//
//   a rank  reported                     no verdict yet: the rank decides alone
//              |----------- verdict -----------|
//   rank 0     |-- answers --|
//           asks the      gives the verdict with the answers that it has
//           other ranks
//
//   A transport fails, by itself or because of another rank:
//
//   a rank  error         reported to rank 0
//              |-- reason --|
//   rank 0                  |-- round 1 --|-- round 2 --|  believes it
//                           |------------ echoes -----------|  at the latest
//
//   A transport finds that ranks differ (FAILED_PRECONDITION), and rank 0
//   compares what they have issued:
//
//   a rank  error; the operation           no verdict yet: the error is
//           is reported as late            reported as above
//              |------------ mismatch ----------|
//   rank 0     |-- answers --|  the verdict names both operations
//
//   A device may have done operations that no thread has seen done yet:
//
//   a rank  failure or tick    what is known counts
//              |---- look ----|
//
// `answers`, `verdict` and `echoes` are measured on the control plane's clock,
// which hardly moves while the process is stopped or its star's thread is held
// up: it counts at most 100 ms from one tick to the next. The others are
// measured on the steady clock.
struct FailureTiming {
  // The time that rank 0 waits for answers about an operation.
  absl::Duration answers = absl::Milliseconds(400);
  // The time that a rank waits for rank 0's verdict on an operation that has
  // expired. It is longer than `answers`.
  absl::Duration verdict = absl::Milliseconds(700);
  // The time that rank 0 waits for the echoes of all ranks before it believes a
  // transport's error.
  absl::Duration echoes = absl::Seconds(2);
  // The number of echoes that rank 0 asks of each rank. One would not be
  // enough: a rank that leaves says so before its first echo. Other ranks hear
  // of that then, and what they say about it comes before their second echo.
  int echo_rounds = 2;

  // The time that a rank keeps a transport's error to itself before it reports
  // it. Echoes bring rank 0 only what other ranks have already sent. But if the
  // transport of a rank runs out of memory, it may end its connections some
  // time before the call returns and the rank sends the cause.
  absl::Duration reason = absl::Milliseconds(300);
  // The same time for a mismatch that a transport has seen in an operation. It
  // is longer, since rank 0 can say which rank has issued what, and the
  // transport can't.
  absl::Duration mismatch = absl::Seconds(5);

  // The time for which it may be unknown what a device has done, before what is
  // known counts.
  absl::Duration look = absl::Milliseconds(100);

  // The time that a rank which has aborted a group waits, when it closes the
  // group, for rank 0 to say whether another rank failed first.
  absl::Duration abort = absl::Seconds(1);
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_CONTROL_FAILURE_TIMING_H_
