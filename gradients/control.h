// Control is what the ranks add up at the end of a step beside the gradients:
// weights, requests, sums, and which parameters were used. Internal.
#ifndef LOCKSTEP_GRADIENTS_CONTROL_H_
#define LOCKSTEP_GRADIENTS_CONTROL_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/work.h"
#include "lockstep/gradients/exact_sum.h"
#include "lockstep/gradients/gradients_step.h"
#include "lockstep/gradients/marks.h"

namespace lockstep::internal_gradients {

// Thread-safety: thread-compatible.
class Control {
 public:
  // With shards, `exact` says how they are added up. It is null otherwise, and
  // outlives the Control.
  explicit Control(const ExactSum* exact) : exact_(exact) {}

  // Returns INVALID_ARGUMENT for a wrong weight, or a wrong number of sums.
  absl::Status Check(const StepInput& input, int ranks) const;

  // Begins with what this rank brings. Allocates no memory in later steps.
  void Write(const StepInput& input);

  // Adds what Average brings: whether this rank has marked parameters, whether
  // it is the first rank and has, and, if `each` is true, which ones.
  void WriteMarks(const Marks& marks, bool each, bool is_first_rank);

  // Adds up the shards of this rank, which a rank alone needs, too.
  void AddUpShards(const StepInput& input);

  // Adds up the elements over the ranks of the group, in place.
  // Requires: AddUpShards was called.
  absl::StatusOr<Work> AddUp(Communicator& group, const CallOptions& call);

  // Returns what all ranks have brought, and writes the sums to the input's.
  StepResult Read(const StepInput& input) const;

  // Returns true if the first rank has marked parameters.
  // Requires: WriteMarks was called.
  bool HasFirstRankMarked() const { return elements_[marks_ + 1] > 0; }

  // Returns true if a rank has marked the parameter, or if none has marked any.
  // Requires: WriteMarks was called with `each`.
  bool IsUsed(size_t parameter) const;

 private:
  size_t CountSums(const StepInput& input) const;

  const ExactSum* const exact_;
  std::vector<double> elements_;
  // With shards: the elements of each sum of shards, one after another.
  std::vector<double> sums_;
  size_t marks_ = 0;  // the place of the first element of WriteMarks
};

}  // namespace lockstep::internal_gradients

#endif  // LOCKSTEP_GRADIENTS_CONTROL_H_
