// Reports to the host what a slow join waits for.
//
//   SlowJoin slow(options, [&] { return "missing: " + Missing(); });
//   while (!complete) {
//     io.run_one_until(std::min(deadline, slow.next()));
//     slow.TellIfDue();
//   }
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_SLOW_JOIN_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_SLOW_JOIN_H_

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/rendezvous/star.h"

namespace lockstep::internal_collective {

// Reports of one join.
// Thread-safety: use it on the thread that joins.
class SlowJoin {
 public:
  // The join begins now. `situation` returns what this rank waits for.
  SlowJoin(const StarOptions& options, std::function<std::string()> situation);

  // Returns the time of the next report. It is infinite if there is no on_slow.
  SteadyTime next() const { return next_; }

  // Calls `options.on_slow` when `options.slow_join` has passed, and again
  // whenever the time that has passed has doubled.
  void TellIfDue();

 private:
  const StarOptions& options_;
  const std::function<std::string()> situation_;
  const SteadyTime start_ = SteadyNow();
  absl::Duration waited_;
  SteadyTime next_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_SLOW_JOIN_H_
