// The state of one group at rank 0.
#ifndef LOCKSTEP_COLLECTIVE_CONTROL_HUB_GROUP_H_
#define LOCKSTEP_COLLECTIVE_CONTROL_HUB_GROUP_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/control/mark_table.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {

// One group, as rank 0 knows it. Ranks are those of the group, if nothing else
// is said.
// Thread-safety: use it on the star's thread.
struct HubGroup {
  // The properties are empty while no rank has joined, since a rank may fail a
  // group before that.
  GroupInfo info;
  int first = 0;  // the rank that joined first, and gave `info`
  std::set<int> joined;
  std::map<int, LaneCounts> left;
  std::set<int> detached;

  absl::Status failure;
  uint64_t failed_after = 0;  // collectives up to this one may still end

  // The first failure of a transport, which may have its cause on a rank that
  // has yet to tell it, and the time when it came.
  absl::Status hearsay;
  absl::Duration heard_at;
  int round = 0;             // of echoes, from 1
  std::set<int> echoes_due;  // the ranks that have not answered this round

  // The group's store, and the job ranks that wait for a value.
  std::map<std::string, std::string> values;
  std::map<std::string, std::set<int>> wanted;

  MarkTable marks;

  // Returns the rank in the group of a rank of the job, or -1 if that is not a
  // member.
  int RankOf(int job_rank) const;

  // Returns whether a rank that has dropped the group, and knows nothing of it
  // any more, had done the operation before. A rank that has only left the
  // group has yet to do what it has issued.
  bool DidItsPart(int rank, const TurnId& turn) const;

  // Returns "" or, if a device may have done an operation in which two ranks
  // differ, which results they must not rely on.
  std::string WhatIsSuspect(int rank, int other) const;
};

using HubGroups = std::map<std::string, HubGroup>;  // by key

// Returns the rank in the group of a rank of the job, or -1.
int RankIn(const GroupInfo& info, int job_rank);

// Returns the ranks of the group that an operation of the lane needs.
std::vector<int> RanksOf(const GroupInfo& info, const LaneId& lane);

// Returns whether a job of `size` ranks can have such a group.
bool MakesSense(const GroupInfo& info, int size);

// Returns a rank of the group for a verdict, with the name "rank 1 (trainer-0,
// pid 4711, rank 3 of the job)".
verdicts::Party PartyOf(const GroupInfo& info, int rank,
                        absl::Span<const Peer> peers);

// Sends the same to all ranks of the group.
void SendToAll(const GroupInfo& info, const std::string& message, Star& star);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_CONTROL_HUB_GROUP_H_
