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
// A failure has no blame if no single rank is the cause, for example because
// ranks differ, or because data does not get through.
#ifndef LOCKSTEP_COLLECTIVE_BLAME_H_
#define LOCKSTEP_COLLECTIVE_BLAME_H_

#include <optional>

#include "absl/status/status.h"
#include "lockstep/base/language.h"

namespace lockstep {

// The rank that failed first. It is a plain value.
struct Blame {
  // The rank in the job. In a group of threads (LocalGroup), the rank in the
  // group.
  int rank = -1;
  // The code of that rank's own error. It is UNAVAILABLE if the rank was lost
  // or has left.
  absl::StatusCode code = absl::StatusCode::kUnknown;
  // False if a session's rank failed before its first step.
  bool has_begun = true;
};

// Returns the blame of a status, or nothing if it has none. The blame is the
// payload "lockstep/blame". A status that is made anew of a code and a message
// loses its payloads.
std::optional<Blame> BlameOf(const absl::Status& status);

// Returns `status` with this blame in place of an earlier one. An OK status
// stays as it is.
absl::Status WithBlame(absl::Status status, const Blame& blame);

namespace internal_collective {

// Returns whom to blame for `why`, which is an error of rank `rank`: the rank
// that `why` blames or, if it blames none, `rank` itself.
Blame BlameFor(const absl::Status& why, int rank);

}  // namespace internal_collective
}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_BLAME_H_
