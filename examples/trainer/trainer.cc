#include "lockstep/examples/trainer/trainer.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/examples/trainer/digits.h"
#include "lockstep/examples/trainer/mlp.h"
#include "lockstep/examples/trainer/optimizer.h"
#include "lockstep/examples/trainer/schedule.h"
#include "lockstep/session/main.h"

namespace trainer {

using lockstep::Batch;
using lockstep::Dataset;

void BindOptions(TrainerOptions& options, lockstep::OptionTable& table) {
  table.Add("epochs", &options.epochs, "How often all samples come.");
  table.Add("hidden", &options.hidden, "The sizes of the hidden layers.");
  table.Add("seed", &options.seed, "The first weights come from it.");
  table.AddTable("optimizer", &options.optimizer, "The optimizer.");
  table.AddTable("schedule", &options.schedule,
                 "How the optimizer's learning rate changes.");
  table.Add("clip", &options.clip, "The largest norm of the gradients.");
}

absl::Status RegisterParts(lockstep::PluginRegistry& registry) {
  return registry.Add<Dataset>("digits", "Handwritten digits.", Digits::Create);
}

absl::Status Train(lockstep::Session& session, const TrainerOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto train, session.MakeLoader("train"));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto test, session.MakeLoader("test"));
  LOCKSTEP_ASSIGN_OR_RETURN(
      Mlp model, Mlp::Create(kPixels, options.hidden, kDigits, options.seed));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto gradients,
                            session.MakeGradients(model.parameters()));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto optimizer,
                            MakeOptimizer(options.optimizer, *gradients));
  LOCKSTEP_RETURN_IF_ERROR(CheckSchedule(options.schedule));
  if (!(options.clip > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("clip should be more than 0, but is ", options.clip));
  }
  LOCKSTEP_RETURN_IF_ERROR(optimizer->AddStateTo(session));
  LOCKSTEP_RETURN_IF_ERROR(session.Restore());

  for (const int64_t epoch : session.Epochs(*train, options.epochs)) {
    for (lockstep::Step& step : session.Steps(*train, epoch)) {
      for (const Batch& batch : step) {
        LOCKSTEP_ASSIGN_OR_RETURN(const DigitRows rows, RowsOf(batch));
        const Score score = model.AddGradients(rows.pixels, rows.digits);
        step.Add("loss", score.loss);
        step.Add("accuracy", score.right);
      }
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
      // A step without samples has no mean.
      if (step.total_weight() > 0 && !std::isfinite(step.mean("loss"))) {
        return absl::OutOfRangeError(
            "the loss is not finite any more: take a smaller learning rate");
      }
      LOCKSTEP_RETURN_IF_ERROR(gradients->ClipByNorm(options.clip));
      optimizer->Update(ShareOf(options.schedule, step.global_number()));
    }
    const auto evaluate = [&](const Batch& batch, lockstep::Sums& sums) {
      LOCKSTEP_ASSIGN_OR_RETURN(const DigitRows rows, RowsOf(batch));
      const Score score = model.Evaluate(rows.pixels, rows.digits);
      sums.Add("loss", score.loss);
      sums.Add("accuracy", score.right);
      return absl::OkStatus();
    };
    LOCKSTEP_ASSIGN_OR_RETURN(const lockstep::Evaluation tested,
                              session.Evaluate(*test, evaluate));
    LOCKSTEP_RETURN_IF_ERROR(
        session.SaveIfBest("best", tested.mean("loss"), lockstep::Best::kLowest)
            .status());
  }
  return absl::OkStatus();
}

}  // namespace trainer
