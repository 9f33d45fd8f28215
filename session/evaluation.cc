// The evaluation of a loader.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/phase.h"
#include "lockstep/session/reports.h"
#include "lockstep/session/sums.h"
#include "lockstep/session/training.h"

namespace lockstep::internal_session {
namespace {

absl::Status CheckCall(const Training& training, const Loader& loader) {
  LOCKSTEP_RETURN_IF_ERROR(training.Check(Call::kEvaluate, "Evaluate"));
  // A step in which a stop was agreed must still end and be saved. Its hooks
  // belong to it.
  const bool is_outside =
      !training.phases.in_function() && !training.phases.in_step();
  if (is_outside) {
    if (training.stopping) return Training::StopsError();
    LOCKSTEP_RETURN_IF_ERROR(
        training.loaders.CheckBodies("an evaluation follows"));
  }
  if (loader.options().advance_epochs || loader.options().max_steps > 0) {
    return absl::InvalidArgumentError(
        "an evaluation reads one epoch: leave advance_epochs and max_steps of "
        "its loader as they are");
  }
  LOCKSTEP_RETURN_IF_ERROR(training.CheckShards(loader));
  return training.loaders.CheckEvaluate(loader);
}

absl::Status ReadAll(
    Training& training, Loader& loader,
    const std::function<absl::Status(const Batch&, Sums&)>& evaluate,
    ShardSums& sums, int64_t& samples) {
  LOCKSTEP_RETURN_IF_ERROR(loader.StartEpoch(0));
  Batch batch;
  int64_t unread = 0;
  for (;;) {
    const NextResult next = loader.Next(batch);
    if (!next.ok()) {
      return training.InLoader(loader, next.kind(), next.status());
    }
    if (next.kind() == NextKind::kEnd) {
      training.TellUnread(loader, unread);
      return absl::OkStatus();
    }
    training.AddUnread(loader, batch, unread);
    const Phases::Within within(training.phases, Phase::kEvaluating);
    LOCKSTEP_RETURN_IF_ERROR(evaluate(batch, sums.part()));
    LOCKSTEP_RETURN_IF_ERROR(sums.EndPart(batch.shard()));
    samples += batch.valid();
  }
}

}  // namespace

absl::StatusOr<Evaluation> Evaluate(
    Training& training, Loader& loader,
    const std::function<absl::Status(const Batch& batch, Sums& sums)>&
        evaluate) {
  LOCKSTEP_RETURN_IF_ERROR(CheckCall(training, loader));
  Evaluation evaluation;
  ShardSums sums(training.shards());
  absl::Status read =
      ReadAll(training, loader, evaluate, sums, evaluation.samples);
  training.loaders.EndEvaluation(loader);
  Means means;
  if (read.ok()) {
    read = training.AddUp(evaluation.samples, WeightSources(), sums,
                          "an evaluation", /*averaged=*/nullptr, means);
  }
  if (!read.ok()) {
    // Other ranks may wait for this one, so the training ends, whatever the
    // trainer does.
    training.Fail(read);
    return read;
  }
  evaluation.means = means.values;
  // An evaluation in a step belongs to that step.
  const int64_t steps = training.steps + (training.phases.in_step() ? 1 : 0);
  training.reports->EndEvaluation(training.loaders.NameOf(loader), steps,
                                  evaluation.samples, means.values,
                                  means.weights);
  LOCKSTEP_RETURN_IF_ERROR(
      training.CallHooks(Phase::kOnEvaluation, [&](SessionHooks& hooks) {
        return hooks.OnEvaluation(training.session, evaluation);
      }));
  return evaluation;
}

}  // namespace lockstep::internal_session
