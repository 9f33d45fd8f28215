// The phases of a training, and the calls that are allowed in each of them. The
// table in session.h tells users the same, and phase_test compares the two.
// Internal.
//
//   Phases phases;
//   LOCKSTEP_RETURN_IF_ERROR(phases.Check(Call::kRestore, "Restore"));
//   phases.GoTo(Phase::kBetween);
//   {
//     const Phases::Within hook(phases, Phase::kOnCheckpointLoad);
//     ...  // calls the hook
//   }
#ifndef LOCKSTEP_SESSION_PHASE_H_
#define LOCKSTEP_SESSION_PHASE_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_session {

enum class Phase {
  kCreated,   // before Run
  kMaking,    // before Restore, or before the first loop of a job without path
  kBetween,   // outside of steps
  kStep,      // in a step, before Average
  kAveraged,  // in a step, where the ranks have added up
  kLeft,      // after a step that was left by break, return or an exception
  kReturned,  // Train has returned

  // The functions of the user that the session calls within these phases.
  kEvaluating,
  kOnStart,
  kOnEpochBegin,
  kOnBatch,
  kOnStep,
  kOnEpochEnd,
  kOnEvaluation,
  kOnCheckpointSave,
  kOnCheckpointLoad,
  kOnFailure,
  kOnShutdown,
};

// The calls that have a column in the table of session.h.
enum class Call {
  kMakeLoader,
  kMakeGradients,  // and AddState, AddPart, RestoreFrom
  kRestore,
  kSteps,  // and Epochs
  kAdd,    // and AddWeight
  kAverage,
  kEvaluate,
  kSave,
  kSaveAs,  // and SaveIfBest
  kAwaitSaved,
};

// The phase of one training.
// Thread-safety: thread-compatible.
class Phases {
 public:
  // Changes the phase while it exists, because the session calls a function of
  // the user. If that function leads to another such call, the two are nested.
  // Thread-safety: as Phases.
  class Within {
   public:
    Within(Phases& phases, Phase inner)
        : phases_(phases), before_(std::exchange(phases.now_, inner)) {
      if (inner == Phase::kOnStep) ++phases_.on_steps_;
    }
    ~Within() {
      if (phases_.now_ == Phase::kOnStep) --phases_.on_steps_;
      phases_.now_ = before_;
    }

    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    Phases& phases_;
    const Phase before_;
  };

  // The present phase.
  Phase now() const { return now_; }

  // The present phase without functions of the user.
  Phase outer() const { return outer_; }

  // Returns true if the session is calling a function of the user.
  bool in_function() const { return now_ > Phase::kReturned; }

  bool in_step() const {
    return outer_ == Phase::kStep || outer_ == Phase::kAveraged;
  }

  // Returns true from the beginning of a step until the last OnStep hook has
  // returned, because these may still change what is saved. This includes other
  // functions of the user that are called in between.
  bool is_step_open() const { return in_step() || on_steps_ > 0; }

  // Goes to a phase outside of functions of the user.
  // Requires: no function of the user is being called.
  void GoTo(Phase outer) { now_ = outer_ = outer; }

  // Returns FAILED_PRECONDITION, with what to do, if the call is not allowed in
  // the present phase. `name` is the name of the public function.
  absl::Status Check(Call call, absl::string_view name) const;

 private:
  Phase now_ = Phase::kCreated;
  Phase outer_ = Phase::kCreated;
  int on_steps_ = 0;  // calls of OnStep that have not returned
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_PHASE_H_
