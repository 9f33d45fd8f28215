// Records gather what a rank does in its steps: the events of those that matter
// (step_choice.h), and the times of its operations in all of them. Reports give
// them to sinks. Internal.
//
//   Records records(world, measured, /*keeps_all=*/false);
//   ...
//   if (const StepEvents* events = records.AddStep(step, groups, loader)) {
//     Write(*events);
//   }
//   ...
//   for (const OperationTimes* times : records.TakeTimes()) Write(*times);
#ifndef LOCKSTEP_SESSION_RECORDS_H_
#define LOCKSTEP_SESSION_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/loader.h"
#include "lockstep/metrics/records.h"
#include "lockstep/session/clock_offset.h"
#include "lockstep/session/step_choice.h"
#include "lockstep/session/step_report.h"

namespace lockstep::internal_session {

// Thread-safety: thread-compatible.
class Records {
 public:
  // The events of a loader that are kept until a step has ended.
  static constexpr int64_t kLoaderEvents = 4096;
  // The most events of a step.
  static constexpr size_t kMostEvents = 1024;
  // The most operations whose times are kept apart. All others count as one.
  static constexpr size_t kMostOperations = 64;

  // Operations of one group, which lives at least as long as this.
  struct OfGroup {
    const Communicator* group;
    absl::Span<const OperationRecord> operations;
    int64_t missing = 0;  // that the group's log does not have any more
  };

  // `measured` is how far the steady clock of this rank is ahead of rank 0's,
  // as measured just now; none on rank 0. `world` knows better later. It may be
  // null. `keeps_all` says that the events of all steps are kept.
  Records(const World* world, const std::optional<ClockOffset>& measured,
          bool keeps_all);

  // Takes in a step that has ended, and its operations. Returns its events if
  // they are kept. They live until the next call, and point into the arguments.
  const StepEvents* AddStep(const StepReport& step,
                            absl::Span<const OfGroup> groups,
                            const Loader& loader);

  // Returns the times of operations that have changed since the last call.
  std::vector<const OperationTimes*> TakeTimes();

  // Takes in the slowest samples of a loader.
  void LookAt(const std::string& name, const Loader& loader);

  // Returns the loaders whose slowest samples have changed since the last call,
  // and these samples.
  std::vector<std::pair<std::string, std::vector<SlowRecord>>> TakeSlowest();

 private:
  // An operation whose times are kept.
  struct Kept {
    const Communicator* group;  // null: all others
    OpKind kind;
    DType dtype;
    int64_t count;
    int64_t bucket;
    OperationTimes times;
    int64_t taken = 0;  // the number of times at the last TakeTimes
  };

  void AddTimes(const StepReport& step, const OfGroup& group);
  Kept& FindKept(const Communicator* group, const OperationRecord& record);
  void AddClock(StepEvents& events) const;
  void Add(const StepEvent& event);
  void AddOperations(const OfGroup& group);
  void AddLoaderEvents(const StepReport& step, const Loader& loader);

  const World* const world_;
  const std::optional<ClockOffset> measured_;
  const SteadyTime measured_at_ = SteadyNow();
  const bool keeps_all_;
  StepChoice choice_;
  StepEvents events_;
  std::vector<StepEvent> list_;
  std::vector<Kept> kept_;
  // The place in `kept_` behind the last one that was found, where the next one
  // mostly is, since steps have the same operations.
  size_t next_ = 0;
  std::map<std::string, std::vector<SlowRecord>> slowest_;  // by loader
  std::set<std::string> new_slowest_;  // the loaders whose samples are new
};

// Returns the name of the steady clock of this process. Processes that get the
// same name have the same clock. Returns "" if that can't be told.
std::string NameOfSteadyClock();

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_RECORDS_H_
