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
// rounded once. Where several inputs are NaN it is the first of them that comes
// out. What the thread has set for floats (rounding, flushing subnormal ones)
// does not count. An output may be the same memory as an input. Requires what
// CheckReduction accepts, and one input and one output at least.
void ReduceInOrder(DType dtype, ReduceOp op, double scale,
                   absl::Span<const void* const> inputs, int64_t count,
                   absl::Span<void* const> outs);

// ReduceInOrder without the vectors of this processor, for the test that both
// agree.
void ReduceInOrderPortable(DType dtype, ReduceOp op, double scale,
                           absl::Span<const void* const> inputs, int64_t count,
                           absl::Span<void* const> outs);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_REDUCE_H_
