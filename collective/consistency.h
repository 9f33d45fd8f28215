// Do all ranks mean the same? Asked before anything that would go wrong in
// silence if they did not: the job's options, the names and shapes of
// parameters, the weights that were loaded.
//
//   Fingerprint mine;
//   mine.Add("seed", "7");
//   mine.Add("order", "torch(profile:2.7)");
//   LOCKSTEP_RETURN_IF_ERROR(CheckSame(*group, "the job", mine));
//   // FAILED_PRECONDITION: the ranks of group 'world' differ in the job:
//   //   ranks 2 and 5 of 8 in field 'seed' (8, and 7 on rank 0)
#ifndef LOCKSTEP_COLLECTIVE_CONSISTENCY_H_
#define LOCKSTEP_COLLECTIVE_CONSISTENCY_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"

namespace lockstep {

// All ranks call it, with the same `what` and options. OK, or on every rank the
// same FAILED_PRECONDITION, which says which ranks differ from most (or, where
// no fingerprint has most ranks, from the one of the lowest rank among those
// that have as many) and in which field first. That is no failure of the group,
// as any other status is; and all are told, also where one of them aborts the
// group for it at once. One collective on host memory, of 24 bytes a rank; two
// more where there is a difference to tell. So a group over nccl refuses
// it: take one over host memory.
absl::Status CheckSame(Communicator& group, absl::string_view what,
                       const Fingerprint& mine,
                       const CallOptions& options = {});

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_CONSISTENCY_H_
