// Reduces buffers of several ranks into one, in the order of ranks. So the
// result has the same bits on every rank and in every run.
#ifndef LOCKSTEP_COLLECTIVE_REDUCE_H_
#define LOCKSTEP_COLLECTIVE_REDUCE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/operation.h"

namespace lockstep::internal_collective {

// Sets outs[k][i] = op over j of (inputs[j][i] * scale), for i below `count`.
// avg divides by the number of inputs. f16 and bf16 are accumulated in float
// and rounded once. If several inputs are NaN, the result is the first of them.
// The floating-point modes of the calling thread (rounding, flushing of
// subnormal values) have no influence. An output may be the same memory as an
// input.
// Requires: CheckReduction accepts the arguments, and there is at least one
// input and one output.
void ReduceInOrder(DType dtype, ReduceOp op, double scale,
                   absl::Span<const void* const> inputs, int64_t count,
                   absl::Span<void* const> outs);

// Does the same without the vector instructions of this processor. It is for
// the test that both give the same bits.
void ReduceInOrderPortable(DType dtype, ReduceOp op, double scale,
                           absl::Span<const void* const> inputs, int64_t count,
                           absl::Span<void* const> outs);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_REDUCE_H_
