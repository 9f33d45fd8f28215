// The lane of operations of a group whose ranks are threads of one process.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_LOCAL_LANE_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_LOCAL_LANE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/engine/exchange.h"
#include "lockstep/collective/engine/issued_work.h"
#include "lockstep/collective/engine/lane.h"

namespace lockstep::internal_collective {

// A lane of collectives, or of messages to or from one rank, that needs no
// thread: the rank that comes last to an operation ends it for all ranks.
// Thread-safety: that of Lane.
class LocalLane final : public Lane, private Exchange::Seat {
 public:
  // In a lane of messages, this rank sends if `sends` is true, and else
  // receives.
  // Requires: `exchange` outlives this.
  LocalLane(Group& group, const LaneId& id, bool sends, Exchange& exchange)
      : Lane(group, id), sends_(sends), exchange_(exchange) {}

  // Takes in that this rank has joined the group. Called without the mutex, on
  // the lane of collectives.
  void Join();

  void Begin(const Turn& turn) override;
  void Fail() override;
  void AwaitIdle() override {}

 private:
  // These override Exchange::Seat.
  void OnJoined() override;
  void OnDone(uint64_t number) override;
  void OnLeft(int left, const LaneCounts& counts) override;
  void OnError(uint64_t number, const absl::Status& why) override;

  const bool sends_;
  Exchange& exchange_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_LOCAL_LANE_H_
