// Hooks are what a host wants to do at the events of a training: log, trace,
// ask a scheduler whether to go on.
//
//   class Progress : public SessionHooks {
//    public:
//     absl::Status OnStep(Session& session, const Step& step) override {
//       if (session.rank() == 0) Show(step.number(), step.mean("loss"));
//       return absl::OkStatus();
//     }
//   };
//
//   Progress progress;
//   options.hooks = {&progress};
#ifndef LOCKSTEP_SESSION_HOOKS_H_
#define LOCKSTEP_SESSION_HOOKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "lockstep/base/language.h"

namespace lockstep {

struct Evaluation;
class Session;
class Step;

// Every function is called on the thread that trains, on each rank that has the
// hooks. A Status that is not OK, or an exception, ends the training on all
// ranks with its words, unless the function says otherwise.
class SessionHooks {
 public:
  virtual ~SessionHooks() = default;

  // The ranks agree on the job, and the trainer is about to be called.
  virtual absl::Status OnStart(Session& /*session*/) {
    return absl::OkStatus();
  }

  // The steps of an epoch begin, or go on after a restart in the middle of it,
  // where this was called before the restart, too.
  virtual absl::Status OnEpochBegin(Session& /*session*/, int64_t /*epoch*/) {
    return absl::OkStatus();
  }

  // A step is over on this rank, and its sums are added up over all ranks.
  virtual absl::Status OnStep(Session& /*session*/, const Step& /*step*/) {
    return absl::OkStatus();
  }

  // All steps of an epoch are over. A training that goes on from there calls it
  // again: the checkpoint is from before the first call.
  virtual absl::Status OnEpochEnd(Session& /*session*/, int64_t /*epoch*/) {
    return absl::OkStatus();
  }

  virtual absl::Status OnEvaluation(Session& /*session*/,
                                    const Evaluation& /*evaluation*/) {
    return absl::OkStatus();
  }

  // A checkpoint is about to be saved: session.steps() steps have ended.
  virtual absl::Status OnCheckpointSave(Session& /*session*/) {
    return absl::OkStatus();
  }

  // The training goes on from a checkpoint, after session.steps() steps.
  virtual absl::Status OnCheckpointLoad(Session& /*session*/) {
    return absl::OkStatus();
  }

  // The training has failed, here or on another rank, which `why` says. What
  // this returns is logged, and changes nothing.
  virtual absl::Status OnFailure(Session& /*session*/,
                                 const absl::Status& /*why*/) {
    return absl::OkStatus();
  }

  // The training is over, well or not, and the ranks are about to part. What
  // this returns is told on this rank alone, where the training went well.
  virtual absl::Status OnShutdown(Session& /*session*/) {
    return absl::OkStatus();
  }
};

}  // namespace lockstep

#endif  // LOCKSTEP_SESSION_HOOKS_H_
