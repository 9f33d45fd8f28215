#include "lockstep/collective/rendezvous/slow_join.h"

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/steady_time.h"

namespace lockstep::internal_collective {

SlowJoin::SlowJoin(const StarOptions& options,
                   std::function<std::string()> situation)
    : options_(options),
      situation_(std::move(situation)),
      waited_(options.on_slow ? options.slow_join : absl::InfiniteDuration()),
      next_(After(waited_, start_)) {}

void SlowJoin::TellIfDue() {
  if (SteadyNow() < next_) return;
  // An exception of the host's code does not end the join.
  CatchAll("on_slow", [&] {
    options_.on_slow(absl::StrCat("rank ", options_.rank, " has waited ",
                                  absl::FormatDuration(waited_),
                                  " for all ranks to join: ", situation_()));
    return absl::OkStatus();
  }).IgnoreError();
  const SteadyTime now = SteadyNow();
  while (next_ <= now) {
    waited_ *= 2;
    next_ = After(waited_, start_);
  }
}

}  // namespace lockstep::internal_collective
