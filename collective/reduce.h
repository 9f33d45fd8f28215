// Reducing buffers of several ranks into one, in the order of ranks: so the
// same bits come out whoever does it, and when.
#ifndef LOCKSTEP_COLLECTIVE_REDUCE_H_
#define LOCKSTEP_COLLECTIVE_REDUCE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/operation.h"

namespace lockstep::internal_collective {

// outs[k][i] = op over j of (inputs[j][i] * scale), for i below `count`; avg
// divides by the number of inputs. f16 and bf16 are accumulated in float and
// rounded once. An output may be the same memory as an input. Requires what
// CheckReduction accepts, and one input at least.
void ReduceInOrder(DType dtype, ReduceOp op, double scale,
                   absl::Span<const void* const> inputs, int64_t count,
                   absl::Span<void* const> outs);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_REDUCE_H_
