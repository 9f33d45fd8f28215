// Does a collective for all ranks at once, for backends whose ranks can see
// each other's memory: the ranks bring their operations together, and one of
// them performs all.
//
//   // ops[r] is the operation of rank r.
//   LOCKSTEP_RETURN_IF_ERROR(Perform(ops));
#ifndef LOCKSTEP_COLLECTIVE_PERFORM_H_
#define LOCKSTEP_COLLECTIVE_PERFORM_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/operation.h"

namespace lockstep {

// Writes the output of every rank. Floats are reduced in the order of ranks, so
// the bits are those of Lockstep's own backends.
//
// Requires operations of one fingerprint, which are collectives. Where ranks
// disagree on the counts of an all-to-all, which are no part of the
// fingerprint, it writes nothing and returns FAILED_PRECONDITION.
absl::Status Perform(absl::Span<const Operation* const> ops);

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_PERFORM_H_
