// An Optimizer changes a model's parameters according to their gradients.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Optimizer> optimizer,
//                             MakeOptimizer(options.optimizer, *gradients));
//   LOCKSTEP_RETURN_IF_ERROR(optimizer->AddStateTo(session));
//   LOCKSTEP_RETURN_IF_ERROR(session.Restore());
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
//   optimizer->Update(/*share=*/1);
#ifndef LOCKSTEP_EXAMPLES_TRAINER_OPTIMIZER_H_
#define LOCKSTEP_EXAMPLES_TRAINER_OPTIMIZER_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/option_table.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/session/session.h"

namespace trainer {

struct OptimizerOptions {
  enum class Kind { kSgd, kAdam };

  Kind kind = Kind::kAdam;
  float learning_rate = 0.002F;  // 0 or more
  float momentum = 0.9F;         // of both kinds, from 0 to below 1
  float decay = 0.999F;          // of Adam's squares, in the same range

  // With a weight decay, Adam is AdamW: each step first multiplies the
  // parameters by 1 - learning rate * weight_decay. It is 0 or more.
  float weight_decay = 0;

  // Groups of parameters with settings of their own. A group has the parameters
  // whose names end with its key, such as "bias"; if several keys fit, the
  // longest one counts. A value of `rates` multiplies the learning rate, and
  // one of `weight_decays` replaces weight_decay.
  std::map<std::string, float> rates;
  std::map<std::string, float> weight_decays;
};

void BindOptions(OptimizerOptions& options, lockstep::OptionTable& table);

// Requires: the parameters and the gradients stay where they are.
// Thread-safety: thread-compatible.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Adds the optimizer's state to the job's checkpoints. Without it, a
  // restarted training would give another result.
  virtual absl::Status AddStateTo(lockstep::Session& session) = 0;

  // Changes the parameters, with this share of the learning rate (see
  // schedule.h). Requires that the gradients are averaged.
  virtual void Update(double share) = 0;
};

// Returns INVALID_ARGUMENT, with the name of the option, if an option is out of
// range, or if a key of a group is the end of no parameter's name.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const OptimizerOptions& options, lockstep::Gradients& gradients);

}  // namespace trainer

#endif  // LOCKSTEP_EXAMPLES_TRAINER_OPTIMIZER_H_
