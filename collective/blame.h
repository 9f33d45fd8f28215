// Blame says why a group of ranks has failed, as data: the cause, the ranks
// with which it lies, and the operation. Every failure of a group has it, and
// it is the same on all ranks, whatever a rank's own code and message are.
//
//   const absl::Status status = Wait(group->Barrier());
//   if (const std::optional<Blame> blame = BlameOf(status)) {
//     for (const Blame::Rank& rank : blame->ranks) {
//       std::cerr << Name(blame->cause) << " on " << rank.host << '\n';
//     }
//   }
//   std::cerr << ToLines(status) << '\n';
//   // UNAVAILABLE: rank 2 (trainer-1, pid 4711) is lost: connection lost; ...
//   //   lost: rank 2 (trainer-1, pid 4711); its process or its host has ended:
//   //   look at its exit code, its last output, and the kernel's log
//
// A status without blame is an error of this rank alone. Blame is a payload of
// the status, "lockstep/blame", whose text is JSON. A status that is made anew
// from the code and the message of another one has no payloads: Annotate of
// base/annotate.h keeps them. docs/errors.md has a table of the causes.
#ifndef LOCKSTEP_COLLECTIVE_BLAME_H_
#define LOCKSTEP_COLLECTIVE_BLAME_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Why a group has failed. It is a plain value.
struct Blame {
  enum class Cause {
    // The cause is not known here: for example, a newer release has named it.
    kUnknown,
    // The rank has failed by itself, and `code` is that of its error: it called
    // Abort, its training returned an error, or it ran out of memory, threads
    // or descriptors.
    kFailed,
    // The ranks have not joined the job.
    kAbsent,
    // The rank has left the group or the job, and others still needed it.
    kLeft,
    // The connection to the rank has ended: its process or its host is gone.
    kLost,
    // The rank's process lives as far as is known, and is not heard of.
    kSilent,
    // The ranks answer, and did not come to the operation before its deadline.
    kLate,
    // The ranks do not do the same, or wait for each other.
    kDiffer,
    // All ranks came, and their data did not get through.
    kData,
  };

  // A rank with which the cause lies.
  struct Rank {
    // The rank in the job, or -1 if its number there is not known. For a group
    // of threads, and for groups that are split off it, this is the rank in the
    // group that MakeLocalGroup has made.
    int rank = -1;
    // Its host and process; "" and 0 for a rank that is a thread, and for one
    // that never came.
    std::string host;
    int64_t pid = 0;
    // The operation that the rank issued last, in words; "" if it has issued
    // none, or if that is not known. A long text is cut off.
    std::string last;
    // How old this knowledge was at the failure. It is 0 if the rank has told
    // it itself, and grows up to a second between two heartbeats. The rank may
    // have issued more since then.
    absl::Duration age;
  };

  // A blame names at most this many ranks.
  static constexpr size_t kMostRanks = 16;

  Cause cause = Cause::kUnknown;
  // The code of the error of the rank that failed by itself, and otherwise that
  // of the group's failure. It is UNAVAILABLE if a rank is gone.
  absl::StatusCode code = absl::StatusCode::kUnknown;
  // The first kMostRanks of the ranks, and the number of further ones. There
  // are none if nothing is known of a rank.
  std::vector<Rank> ranks;
  int64_t more = 0;
  // The operation that did not end, in words, and its number in the group; ""
  // and 0 if the group did not fail in one. Where a device can't tell in which
  // one ranks have differed, it is the last that it may be. Messages between
  // two ranks have no number.
  std::string operation;
  uint64_t number = 0;
  // False if a session's rank failed before its first step, or if the rank
  // failed to join the job or to make its part of a group.
  bool has_begun = true;

  // Returns the only rank in the job with which the cause lies, or -1 if that
  // is not one rank.
  int rank() const {
    return ranks.size() == 1 && more == 0 ? ranks[0].rank : -1;
  }
};

// Returns the blame of a status, or nothing if it has none.
std::optional<Blame> BlameOf(const absl::Status& status);

// Returns `status` with this blame in place of an earlier one. An OK status
// stays as it is.
absl::Status WithBlame(absl::Status status, const Blame& blame);

// Returns the name of a cause, such as "lost".
absl::string_view Name(Blame::Cause cause);

// Returns the cause, the ranks, the operation and what to do about it, in one
// line.
std::string Describe(const Blame& blame);

// Returns the blame in one line of JSON, with the names of the fields above. A
// duration is in seconds.
//
//   {"cause":"lost","code":"UNAVAILABLE","ranks":[{"rank":2,"host":"trainer-1",
//    "pid":4711,"last":"barrier() #3 of group 'world'","age":1.2}],"more":0,
//    "operation":"","number":0,"has_begun":true}
std::string ToJson(const Blame& blame);

// Reads back what ToJson has returned. Returns nothing for another text.
std::optional<Blame> ParseBlame(absl::string_view json);

// Returns the code and the message in one line, and the blame of the status, if
// it has one, in another. There is no end of a line at the end.
std::string ToLines(const absl::Status& status);

namespace internal_collective {

// Returns whom to blame for `why`, which is an error of rank `self`: the blame
// of `why` or, if it has none, `self`. A session's own error has blame without
// a rank, since a session may not know its rank's number in the job; it gets
// `self`, too.
Blame BlameFor(const absl::Status& why, const Blame::Rank& self);

// Returns this process as rank `rank`.
Blame::Rank ThisProcess(int rank);

// Returns `why`. If it has no blame, it gets one with this cause and no ranks.
absl::Status Blaming(Blame::Cause cause, const absl::Status& why);

// Returns the blame as it stands in the payload, or "" without blame, and puts
// it into another status. These serve for statuses that go to other ranks.
std::string BlameText(const absl::Status& status);
absl::Status WithBlameText(absl::Status status, absl::string_view text);

}  // namespace internal_collective
}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_BLAME_H_
