// Perform does a collective for all ranks at once. It is for backends whose
// ranks can read each other's memory: the ranks collect their operations, and
// one of them performs all.
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

// Writes the outputs of all ranks. Floats are reduced in the order of ranks, so
// the bits are the same as those of Lockstep's own backends.
//
// Requires: all operations are collectives with the same fingerprint. The
// counts of an all-to-all are not part of the fingerprint: if ranks disagree on
// them, Perform writes nothing and returns FAILED_PRECONDITION.
absl::Status Perform(absl::Span<const Operation* const> ops);

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_PERFORM_H_
