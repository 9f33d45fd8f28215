// These structs have what a rank brings to the end of a step, and what it gets.
//
//   StepInput input;
//   input.weight = rows;
//   double loss = 0.25;  // a sum over this rank's rows
//   input.sums = absl::MakeSpan(&loss, 1);
//   LOCKSTEP_ASSIGN_OR_RETURN(const StepResult step,
//                             gradients->Average(input));
//   loss /= static_cast<double>(step.weight);  // the mean over all rows
#ifndef LOCKSTEP_GRADIENTS_GRADIENTS_STEP_H_
#define LOCKSTEP_GRADIENTS_GRADIENTS_STEP_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep {

// A rank brings this to the end of a step. Make a new one for each step.
struct StepInput {
  // The weight of this rank's gradients, such as its rows or tokens, and 0 if
  // it has none. It must be set. Gradients are sums over rows or tokens, and
  // are divided by the weight of all ranks.
  std::optional<int64_t> weight;

  bool stop = false;  // this rank asks all to stop

  // This rank has data for a further step. It matters where ranks may have
  // different numbers of steps (Gradients::AverageUntilAllAreDone). If it is
  // not known, it stays true, and the loop has one more step at its end, which
  // is skipped. If no rank has more, the loop has ended, so every rank calls
  // AverageUntilAllAreDone before the next one.
  bool has_more = true;

  // Numbers that are added up over all ranks, such as losses. Average and AddUp
  // replace them by their sums. With GradientsOptions::shards, they are those
  // of each shard of this rank, one shard after another: 2 losses of 3 shards
  // are 6 numbers, of which the first 2 become the sums, and the others 0.
  absl::Span<double> sums;

  // The name of the step, such as "step 3 of epoch 1", and the names of the
  // sums. The ranks compare both. By default, steps are counted.
  std::string step;
  std::string sum_names;
};

// Each rank gets this, the sum of what all ranks have brought.
struct StepResult {
  int64_t weight = 0;     // the total
  int64_t stops = 0;      // the ranks that ask to stop
  bool any_more = false;  // a rank has data for a further step

  // True if the parameters should not be updated: the total weight is 0, or a
  // gradient is not finite. The gradients are then 0.
  bool skipped = false;

  // The Euclidean norm of all gradients after the division, and before they are
  // clipped. It is NaN if they are on a device.
  double norm = 0;

  // If a gradient was not finite: which one, and with find_culprit on which
  // rank.
  std::string not_finite;
};

// An OverlapDecision says whether buckets travel while the trainer computes
// other gradients (GradientsOptions::overlap), and why.
struct OverlapDecision {
  bool on = false;        // in the present step, or the next one
  bool is_final = false;  // false while it is found out
  // For example, "a step takes 12.1ms with overlap and 15.3ms without, ...".
  std::string why;
};

}  // namespace lockstep

#endif  // LOCKSTEP_GRADIENTS_GRADIENTS_STEP_H_
