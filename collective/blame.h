// Blame says why a group of ranks has failed, as data: the cause, the ranks to
// blame, and the operation. Every failure of a group has it. It is the same on
// all ranks, even where their codes differ, unless rank 0 is gone or silent.
//
//   const absl::Status status = Wait(group->Barrier());
//   if (const std::optional<Blame> blame = BlameOf(status)) {
//     for (const Blame::Rank& rank : blame->ranks) {
//       std::cerr << Name(blame->cause) << " on " << rank.host << '\n';
//     }
//   }
//   std::cerr << ToLines(status) << '\n';
//   // UNAVAILABLE: rank 2 (trainer-1, pid 4711) is lost: its connection ended
//   // without a goodbye ...
//   //   lost: rank 2 (trainer-1, pid 4711); the process has ended, its ...
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
    // Nothing is heard from the rank, but nothing shows that its process has
    // ended.
    kSilent,
    // The ranks answer, but did not come to the operation before its deadline.
    kLate,
    // The ranks have issued different operations, have different options, or
    // wait for each other in different groups.
    kDiffer,
    // All ranks came, but their data did not get through. Or a transport
    // failed, and no rank knew why.
    kData,
  };

  // A rank that is to blame.
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
    // The age of `last` when the group failed. It is 0 if the rank has
    // answered. Otherwise it is the time since the rank's last heartbeat, and
    // the rank may have issued more operations since then.
    absl::Duration age;
  };

  // A blame names at most this many ranks.
  static constexpr size_t kMostRanks = 16;

  Cause cause = Cause::kUnknown;
  // The code of the rank's error if the cause is kFailed. UNAVAILABLE if a rank
  // is gone. Otherwise, the code with which the group failed.
  absl::StatusCode code = absl::StatusCode::kUnknown;
  // The ranks to blame, at most kMostRanks of them, and the number of further
  // ones. `ranks` is empty if it is not known which ranks are to blame.
  std::vector<Rank> ranks;
  int64_t more = 0;
  // The operation that did not end, in words, and its number in the group; ""
  // and 0 if the group did not fail in one. A device may not tell in which
  // operation the ranks differed. Then this is the last one that it can be.
  // The number is 0 for a message between two ranks.
  std::string operation;
  uint64_t number = 0;
  // False if a session's rank failed before its first step, or if the rank
  // failed to join the job or to make its part of a group.
  bool has_begun = true;

  // Returns the number in the job of the rank to blame. Returns -1 if not
  // exactly one rank is to blame, or if its number is not known.
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
// it has one, in another. The text does not end with a newline.
std::string ToLines(const absl::Status& status);

// Returns whom to blame for `why`, which is an error of rank `self`: the blame
// of `why` or, if it has none, `self`. A session's own error has blame without
// a rank, since a session may not know its rank's number in the job; it gets
// `self`, too.
Blame BlameFor(const absl::Status& why, const Blame::Rank& self);

// Returns this process as rank `rank`.
Blame::Rank ThisProcess(int rank);

namespace internal_collective {

// Returns `why`. If it has no blame, it gets one with this cause and no ranks.
absl::Status Blaming(Blame::Cause cause, const absl::Status& why);

// Returns the blame as it stands in the payload, or "" without blame, and puts
// it into another status. These serve for statuses that go to other ranks.
std::string BlameText(const absl::Status& status);
absl::Status WithBlameText(absl::Status status, absl::string_view text);

}  // namespace internal_collective
}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_BLAME_H_
