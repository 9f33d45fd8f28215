// The part of conformance.h that looks at the bits of reductions, of inputs
// whose sum is another one in another order.
#ifndef LOCKSTEP_COLLECTIVE_TESTING_REDUCTION_BITS_H_
#define LOCKSTEP_COLLECTIVE_TESTING_REDUCTION_BITS_H_

#include <memory>
#include <vector>

#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"

namespace lockstep::internal_collective {

// The same bits on all ranks, whichever of them comes first; of integers, and
// of floats `in_rank_order`, those of ReduceInOrder.
void ExpectSameBits(const std::vector<std::unique_ptr<Communicator>>& ranks,
                    bool in_rank_order);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_TESTING_REDUCTION_BITS_H_
