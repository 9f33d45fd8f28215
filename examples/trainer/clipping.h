// Clipping makes gradients smaller that are too large for a good step.
//
//   LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
//   const double norm = ClipByNorm(*gradients, 1.0);
//   if (std::isfinite(norm)) optimizer->Update(share);
//
// After Average, all ranks have the same gradients, so all of them get the same
// norm, and skip the same steps.
#ifndef LOCKSTEP_EXAMPLES_TRAINER_CLIPPING_H_
#define LOCKSTEP_EXAMPLES_TRAINER_CLIPPING_H_

#include "lockstep/session/gradients.h"

namespace trainer {

// Returns the norm of all gradients together. If it is larger than `most`, all
// gradients are divided so that it becomes `most`. If it is not finite, they
// stay as they are, and the step should be left out.
double ClipByNorm(lockstep::Gradients& gradients, double most);

}  // namespace trainer

#endif  // LOCKSTEP_EXAMPLES_TRAINER_CLIPPING_H_
