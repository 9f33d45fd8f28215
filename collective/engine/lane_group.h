// A LaneGroup holds the state that the lanes of a group share, and lets them
// act on the group.
//
// A function that needs the group's mutex takes the group as an argument, as
// CondVar::Wait takes a mutex, so that Clang's analysis can prove that it is
// held. A function whose name ends with "Unlocking" releases the mutex for a
// while. Anything that the mutex guards may have changed afterwards.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_LANE_GROUP_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_LANE_GROUP_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/control/control_plane.h"
#include "lockstep/collective/control/failure_timing.h"
#include "lockstep/collective/engine/engine_options.h"
#include "lockstep/collective/engine/issued_work.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {

class Lane;

// The state that the lanes of a group share.
// Thread-safety: thread-safe, except for the functions and fields that need
// `mutex`.
class LaneGroup {
 public:
  // The steps by which this rank leaves the group.
  //
  //   | from    | to        | when                                            |
  //   |---------|-----------|-------------------------------------------------|
  //   | kOpen   | kClosed   | it takes no further operation: by Close, or     |
  //   |         |           | because the communicator is dropped             |
  //   | kClosed | kStopping | a group that is dropped has failed: its threads |
  //   |         |           | end, and no others are started                  |
  enum class Phase { kOpen, kClosed, kStopping };

  // Requires: `control` outlives all calls.
  LaneGroup(ControlPlane* control, const EngineOptions& options, int rank,
            std::shared_ptr<OperationLog> log);
  virtual ~LaneGroup() = default;

  LaneGroup(const LaneGroup&) = delete;
  LaneGroup& operator=(const LaneGroup&) = delete;

  // Returns "all_reduce(4 x f32, sum) #17 of group 'world'".
  std::string Describe(const Operation& op) const {
    return op.DescribeIn(options.name);
  }

  // Returns rank `each` of the group for a verdict, with the name "rank 2".
  verdicts::Party PartyOf(int each) const;
  // Returns an operation for a verdict.
  verdicts::Subject SubjectOf(const Operation& op) const {
    return {Describe(op), op.sequence};
  }
  // Returns `why` and, unless it has blame already, blames this rank. Broke
  // also adds the name of the rank.
  absl::Status Blamed(const absl::Status& why) const {
    return WithBlame(why, BlameFor(why, PartyOf(rank).rank));
  }
  absl::Status Broke(const absl::Status& why) const {
    return verdicts::Broke(options.name, PartyOf(rank), why);
  }

  // Ends `work` in one of its lanes.
  void End(IssuedWork& work, const absl::Status& result,
           SteadyTime now = SteadyNow()) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Fails the group because of an exception on this rank.
  virtual void GiveUp(const absl::Status& why) noexcept = 0;

  // Fails the group for a reason that lies on this rank. The others are told at
  // a later tick if there is no memory for the message now.
  virtual void FailOfItself(const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) = 0;

  // Fails the group if a failure is coming and all operations that may end
  // before it have ended.
  virtual void FailIfDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) = 0;

  // Fails the group if a rank has left before its part in the lane's first
  // turn.
  virtual void FailIfLeft(const Lane& lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) = 0;

  ControlPlane& control;
  const EngineOptions options;
  const FailureTiming timing;
  const int rank;
  const int size;
  const std::shared_ptr<OperationLog> log;

  Mutex mutex;
  CondVar changed;
  Phase phase ABSL_GUARDED_BY(mutex) = Phase::kOpen;
  bool connected ABSL_GUARDED_BY(mutex) = false;
  absl::Status failure ABSL_GUARDED_BY(mutex);
  SteadyTime failed_at ABSL_GUARDED_BY(mutex);
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_LANE_GROUP_H_
