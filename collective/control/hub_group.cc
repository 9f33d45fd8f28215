#include "lockstep/collective/control/hub_group.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {

int HubGroup::RankOf(int job_rank) const { return RankIn(info, job_rank); }

bool HubGroup::DidItsPart(int rank, const TurnId& turn) const {
  const auto counts = left.find(rank);
  if (detached.count(rank) == 0 || counts == left.end()) return false;
  const auto count = counts->second.find(turn.lane);
  return count != counts->second.end() && count->second >= turn.number;
}

// Only a device does operations in which ranks differ. The ranks of a device
// send marks.
std::string HubGroup::WhatIsSuspect(int rank, int other) const {
  if (marks.empty()) return "";
  return verdicts::ResultsAreSuspect(marks.FirstUnknown(rank, other));
}

int RankIn(const GroupInfo& info, int job_rank) {
  const auto at =
      std::find(info.job_ranks.begin(), info.job_ranks.end(), job_rank);
  return at == info.job_ranks.end()
             ? -1
             : static_cast<int>(at - info.job_ranks.begin());
}

std::vector<int> RanksOf(const GroupInfo& info, const LaneId& lane) {
  if (!lane.collective()) return {lane.from, lane.to};
  std::vector<int> ranks(info.job_ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

bool MakesSense(const GroupInfo& info, int size) {
  std::vector<bool> seen(size);
  for (const int rank : info.job_ranks) {
    if (rank < 0 || rank >= size || seen[rank]) return false;
    seen[rank] = true;
  }
  return !info.job_ranks.empty() &&
         info.members.size() == info.job_ranks.size();
}

verdicts::Party PartyOf(const GroupInfo& info, int rank,
                        absl::Span<const Peer> peers) {
  const int job_rank = info.job_ranks[rank];
  const Peer& peer = peers[job_rank];
  std::vector<std::string> known;
  if (!peer.host.empty()) {
    known.push_back(absl::StrCat(peer.host, ", pid ", peer.pid));
  }
  if (job_rank != rank) {
    known.push_back(absl::StrCat("rank ", job_rank, " of the job"));
  }
  std::string name = absl::StrCat("rank ", rank);
  if (!known.empty()) {
    absl::StrAppend(&name, " (", absl::StrJoin(known, ", "), ")");
  }
  return {std::move(name), peer.ForBlame()};
}

void SendToAll(const GroupInfo& info, const std::string& message, Star& star) {
  for (const int job_rank : info.job_ranks) star.Send(job_rank, message);
}

}  // namespace lockstep::internal_collective
