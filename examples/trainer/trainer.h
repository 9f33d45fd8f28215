// A trainer that learns to read handwritten digits on any number of ranks. You
// can begin your own trainer from it:
//
//   trainer --config=examples/trainer/digits.toml
//   lockstep launch -n 2 -- trainer --config=examples/trainer/digits.toml
//
// The model, its optimizers and the dataset are in separate files.
#ifndef LOCKSTEP_EXAMPLES_TRAINER_TRAINER_H_
#define LOCKSTEP_EXAMPLES_TRAINER_TRAINER_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/examples/trainer/optimizer.h"
#include "lockstep/examples/trainer/schedule.h"
#include "lockstep/session/main.h"

namespace trainer {

// The settings in the job's table [trainer].
struct TrainerOptions {
  int64_t epochs = 12;
  std::vector<int64_t> hidden = {256};
  uint64_t seed = 1;
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  // The largest norm of the gradients.
  double clip = std::numeric_limits<double>::infinity();
};
void BindOptions(TrainerOptions& options, lockstep::OptionTable& table);

// Registers the dataset, in addition to Lockstep's parts.
absl::Status RegisterParts(lockstep::PluginRegistry& registry);

absl::Status Train(lockstep::Session& session, const TrainerOptions& options);

}  // namespace trainer

#endif  // LOCKSTEP_EXAMPLES_TRAINER_TRAINER_H_
