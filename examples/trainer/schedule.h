// A schedule says which share of the learning rate each step has. It depends on
// the number of the step alone, so a training that goes on from a checkpoint
// has the same rates as one that was not interrupted.
//
//   LOCKSTEP_RETURN_IF_ERROR(CheckSchedule(options.schedule));
//   ...
//   optimizer->Update(ShareOf(options.schedule, step.global_number()));
#ifndef LOCKSTEP_EXAMPLES_TRAINER_SCHEDULE_H_
#define LOCKSTEP_EXAMPLES_TRAINER_SCHEDULE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "lockstep/base/option_table.h"

namespace trainer {

struct ScheduleOptions {
  // Each begins with `warmup` steps in which the share rises to 1, by the same
  // amount in each step:
  //   kConstant  1
  //   kCosine    falls along half a cosine, from 1 to `least` after `steps`
  //              steps, those of the warm-up included
  //   kDecay     is multiplied by `factor` after every `every` steps, which are
  //              counted from the end of the warm-up
  enum class Kind { kConstant, kCosine, kDecay };

  Kind kind = Kind::kConstant;
  int64_t warmup = 0;
  int64_t steps = 1000;
  double least = 0;
  int64_t every = 1000;
  double factor = 0.1;
};

void BindOptions(ScheduleOptions& options, lockstep::OptionTable& table);

// Returns INVALID_ARGUMENT, with the name of the option, if an option is out of
// range.
absl::Status CheckSchedule(const ScheduleOptions& options);

// Returns the share of a step, which counts from 1. The options must have
// passed CheckSchedule.
double ShareOf(const ScheduleOptions& options, int64_t step);

}  // namespace trainer

#endif  // LOCKSTEP_EXAMPLES_TRAINER_SCHEDULE_H_
