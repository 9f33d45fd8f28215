#include "lockstep/session/phase.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep::internal_session {
namespace {

constexpr int kCalls = static_cast<int>(Call::kAwaitSaved) + 1;

struct Rule {
  const char* where;
  bool allows[kCalls];
};

// One row for each phase, in the order of the enumeration. The columns are
// MakeLoader, MakeGradients, Restore, Steps, Add, Average, Evaluate, Save,
// SaveAs and AwaitSaved.
constexpr Rule kRules[] = {
    {"before Run", {true, true}},
    {"before Restore",
     {true, true, true, true, false, false, true, false, false, true}},
    {"outside of a step",
     {true, false, false, true, false, false, true, true, true, true}},
    {"in a step",
     {true, false, false, false, true, true, true, true, true, true}},
    {"in a step, after Average",
     {true, false, false, false, false, true, true, true, true, true}},
    {"after the trainer has left a step",
     {true, false, false, true, false, false, true, false, false, true}},
    {"after Train has returned", {}},
    {"in the function of Evaluate", {}},
    {"in OnStart", {true, true}},
    {"in OnEpochBegin",
     {true, false, false, false, false, false, true, true, true, true}},
    {"in OnBatch", {}},
    {"in OnStep",
     {true, false, false, false, false, false, true, true, true, true}},
    {"in OnEpochEnd",
     {true, false, false, false, false, false, true, false, true, true}},
    {"in OnEvaluation",
     {true, false, false, false, false, false, false, true, true, true}},
    {"in OnCheckpointSave", {}},
    {"in OnCheckpointLoad", {}},
    {"in OnFailure", {}},
    {"in OnShutdown", {}},
};
static_assert(sizeof(kRules) / sizeof(kRules[0]) ==
              static_cast<size_t>(Phase::kOnShutdown) + 1);

bool IsAfterTrain(Phase phase) {
  return phase == Phase::kReturned || phase == Phase::kOnFailure ||
         phase == Phase::kOnShutdown;
}

// Returns what the caller should do instead of a call that is refused.
const char* RemedyFor(Call call, Phase phase) {
  if (IsAfterTrain(phase)) {
    return "objects of Train may be gone, and other ranks may have left: "
           "call it before Train returns";
  }
  if (phase == Phase::kEvaluating) return "call it when Evaluate has returned";
  const bool belongs_to_train = call == Call::kMakeGradients ||
                                call == Call::kRestore || call == Call::kSteps;
  if (phase == Phase::kOnBatch && !belongs_to_train) {
    return "a batch is on its way to the trainer: call it in OnStep, or in the "
           "loop over steps";
  }
  if (phase == Phase::kOnCheckpointSave) {
    return "a checkpoint is being saved: call it in another event";
  }
  if (phase == Phase::kOnCheckpointLoad) {
    return "Restore has not returned yet: call it afterwards";
  }
  switch (call) {
    case Call::kMakeLoader:
      return "call it before Train returns";
    case Call::kMakeGradients:
      return "the training has begun, and this call decides what all ranks and "
             "checkpoints begin with: call it before Restore and before the "
             "first Epochs or Steps";
    case Call::kRestore:
      return "call it once, in Train, when everything is made and added, and "
             "before Epochs and Steps";
    case Call::kSteps:
      if (phase == Phase::kCreated) return "call it in Train";
      if (phase == Phase::kStep || phase == Phase::kAveraged) {
        return "only one loop over steps may be open: let it end first, and "
               "read a second loader within a step by its Next";
      }
      return "loops over steps belong to Train: return from the hook first";
    case Call::kAdd:
    case Call::kAverage:
      return "it belongs to a step that has not ended: call it in the loop "
             "over steps";
    case Call::kEvaluate:
      if (phase == Phase::kOnEvaluation) {
        return "an evaluation has not ended yet: call it in another event";
      }
      return "call it in Train or in a later event";
    case Call::kSave:
    case Call::kSaveAs:
      if (phase == Phase::kCreated || phase == Phase::kOnStart) {
        return "there is nothing to save yet: call it in Train, after Restore";
      }
      if (phase == Phase::kOnEpochEnd) {
        return "the session has just saved, and a training that continues from "
               "a checkpoint of this moment calls OnEpochEnd again, so what "
               "hooks do here would be done twice: call Save in OnStep";
      }
      if (phase == Phase::kOnEvaluation && call == Call::kSave) {
        return "outside of a step, the code that follows the steps of the "
               "epoch has not ended yet, and would be repeated after a "
               "restart: call Save last in the body of the loop over epochs";
      }
      if (phase == Phase::kLeft) {
        return "that step is not complete, and it does not come again: let "
               "loops over steps end by themselves, and call "
               "FinishAfterThisStep in a step that shall be the last one";
      }
      return "call Restore first, which finds out where the training "
             "continues";
    case Call::kAwaitSaved:
      return "call it in Train or in a later event";
  }
  return "";
}

}  // namespace

absl::Status Phases::Check(Call call, absl::string_view name) const {
  const Rule& rule = kRules[static_cast<size_t>(now_)];
  const bool is_too_early =
      now_ == Phase::kOnEvaluation &&
      ((call == Call::kSave && !is_step_open()) ||
       (call == Call::kSaveAs && outer_ == Phase::kMaking));
  if (rule.allows[static_cast<size_t>(call)] && !is_too_early) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      name, " was called ", rule.where, ": ", RemedyFor(call, now_)));
}

}  // namespace lockstep::internal_session
