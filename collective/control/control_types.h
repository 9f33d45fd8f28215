// The values that the ranks of a job and rank 0 tell each other: what a group
// is, where each rank is in it, and how far it has come.
#ifndef LOCKSTEP_COLLECTIVE_CONTROL_CONTROL_TYPES_H_
#define LOCKSTEP_COLLECTIVE_CONTROL_CONTROL_TYPES_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_collective {

// The structs below are sent in messages. Their function Fields lists what is
// sent, in that order.

// A text that may be long, and is cut off when it is sent.
template <typename Text>
struct Shortened {
  explicit Shortened(Text& whole) : text(whole) {}
  Text& text;
};

// Does what std::tie does, but takes a Shortened, too.
template <typename... Field>
std::tuple<Field...> FieldTuple(Field&&... fields) {
  return {std::forward<Field>(fields)...};
}

// The name of a lane, which is a sequence of operations in a group: its
// collectives (-1 and -1), or the messages from one rank to another.
struct LaneId {
  int from = -1;
  int to = -1;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.from, m.to);
  }

  bool collective() const { return from < 0; }
  friend bool operator<(const LaneId& a, const LaneId& b) {
    return std::make_pair(a.from, a.to) < std::make_pair(b.from, b.to);
  }
  friend bool operator==(const LaneId& a, const LaneId& b) {
    return a.from == b.from && a.to == b.to;
  }
};

// An operation of a lane, by its number there, from 1.
struct TurnId {
  std::string group;  // its key
  LaneId lane;
  uint64_t number = 0;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.group, m.lane, m.number);
  }

  friend bool operator<(const TurnId& a, const TurnId& b) {
    return std::tie(a.group, a.lane, a.number) <
           std::tie(b.group, b.lane, b.number);
  }
  friend bool operator==(const TurnId& a, const TurnId& b) {
    return a.group == b.group && a.lane == b.lane && a.number == b.number;
  }
};

// The position of a rank with respect to one operation.
struct Position {
  // True if the rank has issued the operation. Then `fingerprint` and `what`
  // describe it, unless the rank no longer knows it and `what` is "".
  bool here = false;
  // True if the rank still waits in an earlier operation of the lane. It
  // matters if `here` is false.
  bool behind = false;
  uint64_t fingerprint = 0;
  std::string what;  // "all_reduce(4 x f32, sum)"
  // The numbers of elements that it gives and takes in an all-to-all, by rank.
  std::vector<int64_t> send_counts, recv_counts;

  std::string last;  // what it issued last in this group; "" for nothing

  // If the operation is not here, a single thread has issued all operations of
  // the rank in this group, and this thread now waits without a limit in a lane
  // of any group: the first operation of that lane. Otherwise all is empty.
  TurnId waits;
  std::string waits_what;

  template <typename M>
  static auto Fields(M& m) {
    return FieldTuple(m.here, m.behind, m.fingerprint, Shortened(m.what),
                      m.send_counts, m.recv_counts, Shortened(m.last), m.waits,
                      Shortened(m.waits_what));
  }
};

// A report that a lane does not go on: its first operation is slow, the
// transport has failed in it, or a deadline has passed.
struct Late {
  TurnId turn;        // of the first operation of the lane
  Position position;  // the rank's, at that operation
  // True if the deadline of an operation of the lane has passed. That need not
  // be the first operation, which may have a later deadline.
  bool expired = false;
  // "all_reduce(4 x f32, sum) #17 of group 'world'": the operation that has
  // expired, or else the first one, and its number in the group. A message
  // between two ranks has the number 0.
  std::string what;
  uint64_t number = 0;
  // The deadline of the operation that expires first. It counts if `expired`.
  absl::Duration deadline;

  template <typename M>
  static auto Fields(M& m) {
    return FieldTuple(m.turn, Shortened(m.what), m.number, m.position,
                      m.expired, m.deadline);
  }
};

// The backend of ranks that are threads of one process. No other one has this
// name.
inline constexpr char kLocalBackend[] = "local";

// The properties of a group, which must be the same on all its ranks.
struct GroupInfo {
  std::string key;   // unique in the job
  std::string name;  // in messages
  std::string backend;
  std::string parent;          // the key of the group it was split off, or ""
  std::vector<int> members;    // ranks of the parent, by rank
  std::vector<int> job_ranks;  // ranks of the job, by rank

  template <typename M>
  static auto Fields(M& m) {
    return FieldTuple(m.key, m.name, Shortened(m.backend), m.parent, m.members,
                      m.job_ranks);
  }
};

// A digest of the collectives that a rank has issued in a group, up to one of
// them.
struct Mark {
  uint64_t number = 0;
  uint64_t digest = 0;  // of it and of all before it
  std::string what;     // "" if it is not known any more

  template <typename M>
  static auto Fields(M& m) {
    return FieldTuple(m.number, m.digest, Shortened(m.what));
  }
};

// The number of operations in each lane that a rank has issued, or done.
using LaneCounts = std::map<LaneId, uint64_t>;

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_CONTROL_CONTROL_TYPES_H_
