// The part of conformance.h that checks the bits of reductions. The sum of its
// inputs depends on their order.
#ifndef LOCKSTEP_COLLECTIVE_TESTING_REDUCTION_BITS_H_
#define LOCKSTEP_COLLECTIVE_TESTING_REDUCTION_BITS_H_

#include <memory>
#include <vector>

#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"

namespace lockstep::internal_collective {

// Expects the same bits on all ranks, whichever rank comes first. For integers,
// and with `in_rank_order` also for floats, expects the bits of ReduceInOrder.
void ExpectSameBits(const std::vector<std::unique_ptr<Communicator>>& ranks,
                    bool in_rank_order);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_TESTING_REDUCTION_BITS_H_
