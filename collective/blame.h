// Blame says which rank failed first, as data: its number and the code of its
// own error. The failure of a group has it on every rank, whatever that rank's
// own code and message are.
//
//   const absl::Status status = Wait(group->Barrier());
//   if (const std::optional<Blame> blame = BlameOf(status)) {
//     std::cerr << "rank " << blame->rank << " failed first, with "
//               << blame->code << '\n';
//   }
//
// A status without blame is an error of this rank that did not come from
// another rank.
#ifndef LOCKSTEP_COLLECTIVE_BLAME_H_
#define LOCKSTEP_COLLECTIVE_BLAME_H_

#include <optional>

#include "absl/status/status.h"
#include "lockstep/base/language.h"

namespace lockstep {

// The rank that failed first. It is a plain value.
struct Blame {
  // The rank in the job, or -1 if no single rank is the cause: for example,
  // ranks differ, or data does not get through. For a group of threads, and for
  // groups that are split off it, this is the rank in the group that
  // MakeLocalGroup has made.
  int rank = -1;
  // The code of that rank's own error, or of the failure if `rank` is -1. It is
  // UNAVAILABLE if the rank was lost or has left.
  absl::StatusCode code = absl::StatusCode::kUnknown;
  // False if a session's rank failed before its first step, or if the rank
  // failed to make its part of a group.
  bool has_begun = true;
};

// Returns the blame of a status, or nothing if it has none. The blame is the
// payload "lockstep/blame". A new status that is made from the code and the
// message of another one has no payloads, and so no blame.
std::optional<Blame> BlameOf(const absl::Status& status);

// Returns `status` with this blame in place of an earlier one. An OK status
// stays as it is.
absl::Status WithBlame(absl::Status status, const Blame& blame);

namespace internal_collective {

// This value in place of Blame::rank stands for the rank that aborts a group
// with that blame.
inline constexpr int kThisRank = -2;

// Returns whom to blame for `why`, which is an error of rank `rank` of the job:
// the blame of `why` or, if it has none, `rank` itself.
Blame BlameFor(const absl::Status& why, int rank);

// Returns `why` and, unless it has blame, says that no single rank is to blame.
absl::Status BlamingNobody(const absl::Status& why);

}  // namespace internal_collective
}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_BLAME_H_
