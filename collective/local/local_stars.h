// The stars of a job whose ranks are threads of one process. There is no
// connection. Flush and Hurry deliver the messages of all ranks, one after the
// other, on the thread that calls them. If another thread is delivering
// messages, they leave all messages to that thread. If
// LocalStarOptions::has_thread is true, the stars have one thread, which also
// delivers messages and calls OnTick.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Star>> stars,
//                             MakeLocalStars(4, LocalStarOptions()));
//   auto control = std::make_shared<ControlPlane>(std::move(stars[1]));
#ifndef LOCKSTEP_COLLECTIVE_LOCAL_LOCAL_STARS_H_
#define LOCKSTEP_COLLECTIVE_LOCAL_LOCAL_STARS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/rendezvous/star.h"

namespace lockstep::internal_collective {

// The most ranks that a job of threads may have.
inline constexpr int kMostLocalRanks = 4096;

// The options of the stars.
struct LocalStarOptions {
  // True if a thread delivers messages and calls OnTick. If it is false, only
  // Flush, Hurry and Leave deliver messages, OnTick is called only after a
  // call of Hurry, and there are no heartbeats.
  bool has_thread = true;

  // The time between two calls of OnTick, and between two heartbeats.
  absl::Duration tick = absl::Milliseconds(50);
  absl::Duration beat = absl::Seconds(1);
};

// Returns the stars of all ranks, by rank.
// Requires: all of them are started before any of them is used otherwise.
absl::StatusOr<std::vector<std::unique_ptr<Star>>> MakeLocalStars(
    int size, const LocalStarOptions& options);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_LOCAL_LOCAL_STARS_H_
