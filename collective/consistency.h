// CheckSame finds out whether all ranks have the same settings. Call it before
// anything that would silently go wrong if they had not: for the job's options,
// the names and shapes of parameters, or the weights that were loaded.
//
//   Fingerprint mine;
//   mine.Add("seed", "7");
//   mine.Add("order", "torch(profile:2.7)");
//   LOCKSTEP_RETURN_IF_ERROR(CheckSame(*group, "the job", mine));
//   // FAILED_PRECONDITION: the ranks of group 'world' differ in the job:
//   //   ranks 2 and 5 of 8 in field 'seed' (8, and 7 on rank 0)
//
// It compares the content of memory, too, such as weights every 1,000 steps:
//
//   LOCKSTEP_RETURN_IF_ERROR(
//       CheckSame(*group, "the weights",
//                 {{"hidden", ConstBufferOf(hidden)},
//                  {"output", ConstBufferOf(output)}}));
#ifndef LOCKSTEP_COLLECTIVE_CONSISTENCY_H_
#define LOCKSTEP_COLLECTIVE_CONSISTENCY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"

namespace lockstep {

// Compares the fingerprints of all ranks, which call it with the same `what`
// and options. If they differ, all ranks return the same FAILED_PRECONDITION.
// It says which ranks differ from the fingerprint that most ranks have, and in
// which fields. (If several fingerprints have the most ranks, the one with
// the lowest rank among these counts.) This error is no failure of the group;
// any other is. Every rank gets it, even if another rank aborts the group for
// it at once.
//
// It takes one collective on host memory, of 24 bytes a rank, and two more if
// there is a difference. A group over nccl refuses host memory: make another
// group for the check.
absl::Status CheckSame(Communicator& group, absl::string_view what,
                       const Fingerprint& mine,
                       const CallOptions& options = {});

// Memory with a name, such as that of a parameter.
struct NamedBuffer {
  std::string name;
  ConstBuffer values;
};

// Compares the content of memory in the same way: for each name, the type, the
// number of elements, and a digest of their bytes. So -0 and 0 differ, and so
// do two NaNs with different bits. Returns INVALID_ARGUMENT for the memory of a
// device, which must be copied to the host first.
absl::Status CheckSame(Communicator& group, absl::string_view what,
                       absl::Span<const NamedBuffer> mine,
                       const CallOptions& options = {});

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_CONSISTENCY_H_
