// StopSignals notes SIGTERM and SIGINT, so that a program can end between two
// steps and save what it has. A scheduler sends SIGTERM before it kills.
//
//   StopSignals signals;
//   for (...) {
//     // The ranks add up the requests in a reduction that they have anyway, so
//     // that all of them stop after the same step.
//     sums[0] = signals.requested() ? 1 : 0;
//     ...
//     if (sums[0] > 0) break;
//   }
//
// Main of session/main.h has such an object. A loop of one's own needs it; see
// examples/training.cc.
#ifndef LOCKSTEP_BASE_STOP_SIGNALS_H_
#define LOCKSTEP_BASE_STOP_SIGNALS_H_

#include <functional>

#include "lockstep/base/language.h"

namespace lockstep {

// While it lives, the first SIGTERM and the first SIGINT of this process are
// noted, and end nothing. A second signal of the same kind ends the process at
// once. A SIGINT that was ignored before stays so, as in a program that a shell
// has started in the background. A process that is forked from this one is
// ended by the first signal, as it would be without this object.
//
// After it is destroyed, a signal of a kind that has not come yet does nothing,
// because a program that ends should keep its exit code.
// Requires: there is one such object at a time, and no other handler of these
// signals is set later.
// Thread-safety: requested may be called on any thread.
class StopSignals {
 public:
  // The function is called at a signal, within the signal's handler, on any
  // thread. So it may do only what handlers may do, such as to set a
  // std::atomic.
  explicit StopSignals(std::function<void()> at_signal = nullptr);
  ~StopSignals();

  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Returns true if there was a signal.
  bool requested() const;

 private:
  const std::function<void()> at_signal_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_STOP_SIGNALS_H_
