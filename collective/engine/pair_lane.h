// The lane of messages that this rank sends to one rank, or receives from one.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_PAIR_LANE_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_PAIR_LANE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/engine/host_lane.h"
#include "lockstep/collective/engine/issued_work.h"
#include "lockstep/collective/engine/lane.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// A lane of messages to or from one rank. Its thread, which is started for the
// first turn, does all turns. A lane of a rank to itself has no thread: see
// MoveToSelf.
// Thread-safety: that of Lane.
class PairLane final : public BlockingLane {
 public:
  // This rank sends if `sends` is true, and else receives.
  // Requires: `transport` outlives the thread.
  PairLane(Group& group, const LaneId& id, bool sends, TransportBase& transport)
      : BlockingLane(group, id), sends_(sends), transport_(transport) {}

  void Begin(const Turn& turn) override;

 protected:
  void EnsureThread() override;

 private:
  absl::Status Transfer(const Turn& turn) override;

  // Moves the messages that this rank has both sent to itself and asked to
  // receive. No other rank is needed for that. Releases the mutex while the
  // transport moves them.
  static void MoveToSelf(PairLane& sends, PairLane& recvs);
  // Moves the message of the first turns of both lanes, and ends these turns.
  // Returns false if nothing more can be moved. Releases the mutex while the
  // transport moves it.
  static bool MoveFirst(PairLane& sends, PairLane& recvs);

  const bool sends_;
  TransportBase& transport_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_PAIR_LANE_H_
