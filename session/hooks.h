// Hooks run code of the host at the events of a training: for instance to log,
// to trace, or to ask a scheduler whether to continue.
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

class Batch;
struct Evaluation;
class Session;
class Step;

// The session calls every function on the thread that trains, on each rank that
// has the hooks. If all ranks have them, every function but OnFailure may issue
// collectives. The table in session.h says which functions of the session a
// hook may call: OnStep may save and evaluate, for
// instance. If a function returns an error or throws an exception, the training
// ends on all ranks with that message, unless the function's comment says
// otherwise.
//
// Thread-safety: the functions of one session are never called concurrently.
class SessionHooks {
 public:
  virtual ~SessionHooks() = default;

  // Is called when the ranks agree on the job, before the trainer is called.
  virtual absl::Status OnStart(Session& /*session*/) {
    return absl::OkStatus();
  }

  // Is called before the steps of an epoch. If a restarted training, or a later
  // loop, goes on with the same epoch, this is called again for it.
  virtual absl::Status OnEpochBegin(Session& /*session*/, int64_t /*epoch*/) {
    return absl::OkStatus();
  }

  // Is called with each batch of a step, before the trainer gets it. Its memory
  // is given back after it, so OnStep sees no batches. The ranks have the same
  // number of batches in a step, except in one that fails, and with a loader
  // that was not made by MakeLoader.
  virtual absl::Status OnBatch(Session& /*session*/, const Step& /*step*/,
                               const Batch& /*batch*/) {
    return absl::OkStatus();
  }

  // Is called when a step has ended on this rank, and its sums are added up
  // over all ranks. session.steps() contains this step. The checkpoint of this
  // step, if one is due, is saved after the call. An evaluation is possible
  // here also after the last step of a training that stops.
  virtual absl::Status OnStep(Session& /*session*/, const Step& /*step*/) {
    return absl::OkStatus();
  }

  // Is called when all steps of an epoch have ended. The checkpoint of this
  // moment is saved before the call, so a training that continues from it calls
  // this again. One that continues from a later checkpoint does not.
  virtual absl::Status OnEpochEnd(Session& /*session*/, int64_t /*epoch*/) {
    return absl::OkStatus();
  }

  virtual absl::Status OnEvaluation(Session& /*session*/,
                                    const Evaluation& /*evaluation*/) {
    return absl::OkStatus();
  }

  // Is called before a checkpoint is saved, also by name, after session.steps()
  // steps. It is not called for a SaveIfBest that saves nothing.
  virtual absl::Status OnCheckpointSave(Session& /*session*/) {
    return absl::OkStatus();
  }

  // Is called when a checkpoint was restored, after session.steps() steps.
  virtual absl::Status OnCheckpointLoad(Session& /*session*/) {
    return absl::OkStatus();
  }

  // Is called when the training has failed on this rank or on another one.
  // `why` says which. Train has returned or was never called, so its objects
  // may be gone. The session logs an error of this function and otherwise
  // ignores it.
  virtual absl::Status OnFailure(Session& /*session*/,
                                 const absl::Status& /*why*/) {
    return absl::OkStatus();
  }

  // Is called when the training has ended, successfully or not, before the
  // ranks part. Train has returned or was never called, so its objects may be
  // gone, and a checkpoint can't be saved any more. If the training succeeded,
  // Session::Run returns an error of this function, on this rank only.
  virtual absl::Status OnShutdown(Session& /*session*/) {
    return absl::OkStatus();
  }
};

}  // namespace lockstep

#endif  // LOCKSTEP_SESSION_HOOKS_H_
