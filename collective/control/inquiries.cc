#include "lockstep/collective/control/inquiries.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/control/messages.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {
namespace {

// Returns whether the operation's lane is one of the group, and the group lives
// or lets the operation end before its failure.
bool MayStillEnd(const HubGroup& group, const TurnId& turn) {
  const LaneId& lane = turn.lane;
  const bool ends_first =
      group.failed_after > 0 &&
      (!lane.collective() || turn.number <= group.failed_after);
  if (!group.failure.ok() && !ends_first) return false;
  // Other lanes without ranks would not be found when the group is forgotten.
  const int size = static_cast<int>(group.info.job_ranks.size());
  return lane == LaneId() ||
         (lane.from >= 0 && lane.from < size && lane.to >= 0 && lane.to < size);
}

// The ranks that an operation needs and that have not come to it, or differ.
struct Attendance {
  // Two ranks that have issued different operations, if there are any. Then the
  // other fields are not complete.
  std::optional<std::pair<int, int>> differ;
  std::vector<int> missing;
  std::vector<int> behind;  // ranks that wait in an earlier operation
};

Attendance TakeAttendance(const HubGroup& group, const TurnId& turn,
                          const Inquiry& inquiry) {
  Attendance result;
  int first = -1;  // the lowest rank whose operation is known
  for (const int rank : RanksOf(group.info, turn.lane)) {
    const auto position = inquiry.positions.find(rank);
    if (position == inquiry.positions.end() || !position->second.here) {
      if (group.DidItsPart(rank, turn)) continue;
      const bool waits =
          position != inquiry.positions.end() && position->second.behind;
      (waits ? result.behind : result.missing).push_back(rank);
      continue;
    }
    const Position& there = position->second;
    if (there.what.empty()) continue;  // the rank has forgotten it
    if (first < 0) first = rank;
    const Position& other = inquiry.positions.at(first);
    if (there.fingerprint == other.fingerprint) continue;
    result.differ = {first, rank};
    return result;
  }
  return result;
}

std::vector<int> RanksToBlame(const TurnId& turn,
                              const Attendance& attendance) {
  // A message of a rank to itself waits for that rank.
  if (!turn.lane.collective() && turn.lane.from == turn.lane.to) {
    return {turn.lane.from};
  }
  std::vector<int> missing = attendance.missing;
  // Ranks that wait for an earlier operation are not to blame for that.
  if (missing.empty()) missing = attendance.behind;
  return missing;
}

// The numbers of elements in an all-to-all that one rank gives to another, and
// that the other takes from it.
struct Counts {
  int from = 0, to = 0;
  int64_t gives = 0, takes = 0;
};

// Returns an exchange of `rank` in which the two sides differ.
std::optional<Counts> FindMismatch(const Inquiry& inquiry, int rank) {
  const auto exchange = [&inquiry](int from, int to) -> Counts {
    const auto& gives = inquiry.positions.at(from).send_counts;
    const auto& takes = inquiry.positions.at(to).recv_counts;
    const auto i = static_cast<size_t>(to), j = static_cast<size_t>(from);
    if (i >= gives.size() || j >= takes.size()) return {};
    return {from, to, gives[i], takes[j]};
  };
  const auto own = inquiry.positions.find(rank);
  if (own == inquiry.positions.end() || own->second.send_counts.empty()) {
    return std::nullopt;
  }
  for (const auto& [other, position] : inquiry.positions) {
    if (position.send_counts.empty()) continue;
    for (const Counts& each : {exchange(rank, other), exchange(other, rank)}) {
      if (each.gives != each.takes) return each;
    }
  }
  return std::nullopt;
}

}  // namespace

// ---- What ranks say.

void Inquiries::Report(int from, const Late& late) {
  const auto found = groups_.find(late.turn.group);
  if (found == groups_.end()) return;
  const HubGroup& group = found->second;
  const int rank = group.RankOf(from);
  if (rank < 0 || !MayStillEnd(group, late.turn)) return;
  DropEarlier(late.turn);
  const bool is_new = inquiries_.count(late.turn) == 0;
  Inquiry& inquiry = inquiries_[late.turn];
  inquiry.positions[rank] = late.position;
  inquiry.asked.erase(rank);
  const bool expires = late.expired && !inquiry.expired;
  if (is_new || expires) inquiry.subject = {late.what, late.number};
  if (expires) {
    inquiry.expired = true;
    inquiry.deadline = late.deadline;
  }
  if (is_new || expires) Ask(group, late.turn, inquiry, rank);
  AskAgain(from, late.turn);
  Judge(late.turn, rank);
}

void Inquiries::Answer(int from, const TurnId& turn, const Position& position) {
  const auto inquiry = inquiries_.find(turn);
  const auto group = groups_.find(turn.group);
  if (inquiry == inquiries_.end() || group == groups_.end()) return;
  const int rank = group->second.RankOf(from);
  if (rank < 0) return;
  inquiry->second.asked.erase(rank);
  inquiry->second.positions[rank] = position;
  Judge(turn, rank);
}

void Inquiries::OnTick(absl::Duration ran) {
  ran_ = ran;
  std::vector<TurnId> turns;
  for (const auto& [turn, inquiry] : inquiries_) {
    if (inquiry.expired || !inquiry.slow_reported) turns.push_back(turn);
  }
  for (const TurnId& turn : turns) Judge(turn, -1);
}

bool Inquiries::HasExpired(const std::string& group) const {
  return std::any_of(
      inquiries_.begin(), inquiries_.end(), [&group](const auto& inquiry) {
        return inquiry.first.group == group && inquiry.second.expired;
      });
}

void Inquiries::Forget(const std::string& group, uint64_t after) {
  auto i = inquiries_.lower_bound({group, {}, after == 0 ? 0 : after + 1});
  while (i != inquiries_.end() && i->first.group == group &&
         (after == 0 || i->first.lane.collective())) {
    i = inquiries_.erase(i);
  }
}

// Operations of a lane end in order, so earlier ones have ended at the rank
// that waits at `turn`. A verdict is due on those that have expired.
void Inquiries::DropEarlier(const TurnId& turn) {
  auto earlier = inquiries_.lower_bound({turn.group, turn.lane, 0});
  while (earlier != inquiries_.end() && earlier->first < turn) {
    earlier = earlier->second.expired ? std::next(earlier)
                                      : inquiries_.erase(earlier);
  }
}

void Inquiries::Ask(const HubGroup& group, const TurnId& turn, Inquiry& inquiry,
                    int except) {
  const std::string ask = Encode(AskMessage{turn});
  inquiry.asked_at = ran_;
  for (const int rank : RanksOf(group.info, turn.lane)) {
    if (rank == except || group.DidItsPart(rank, turn)) continue;
    inquiry.asked.insert(rank);
    star_.Send(group.info.job_ranks[rank], ask);
  }
}

// Asks a job rank that waits at `turn` about the other operations that wait
// for it. When it was asked before, it may have waited for nothing yet, or for
// an earlier operation of the lane.
void Inquiries::AskAgain(int job_rank, const TurnId& turn) {
  for (const auto& [other, inquiry] : inquiries_) {
    const auto group = groups_.find(other.group);
    if (other == turn || group == groups_.end()) continue;
    const auto position =
        inquiry.positions.find(group->second.RankOf(job_rank));
    if (position == inquiry.positions.end() || position->second.here) continue;
    const TurnId& waits = position->second.waits;
    const bool was_earlier = waits.group == turn.group &&
                             waits.lane == turn.lane &&
                             waits.number < turn.number;
    if (waits.group.empty() || was_earlier) {
      star_.Send(job_rank, Encode(AskMessage{other}));
    }
  }
}

// ---- What rank 0 makes of it.

void Inquiries::Judge(const TurnId& turn, int newest) {
  const auto found = inquiries_.find(turn);
  const auto at = groups_.find(turn.group);
  if (found == inquiries_.end() || at == groups_.end()) return;
  Inquiry& inquiry = found->second;
  const HubGroup& group = at->second;
  const Attendance attendance = TakeAttendance(group, turn, inquiry);
  if (attendance.differ.has_value()) {
    return FailForDifference(turn, group, inquiry, *attendance.differ);
  }
  if (newest >= 0 && JudgeCounts(turn, group, inquiry, newest)) return;
  if (JudgeDeadlock(turn)) return;
  const bool decided =
      inquiry.asked.empty() || ran_ - inquiry.asked_at > timing_.answers;
  if (!decided) return;
  JudgeMissing(turn, group, inquiry, RanksToBlame(turn, attendance));
}

void Inquiries::FailForDifference(const TurnId& turn, const HubGroup& group,
                                  const Inquiry& inquiry,
                                  std::pair<int, int> ranks) {
  std::vector<verdicts::Issued> issued;
  for (const int rank : {ranks.first, ranks.second}) {
    issued.push_back({PartyOf(group.info, rank, star_.peers()),
                      inquiry.positions.at(rank).what});
  }
  const bool collective = turn.lane.collective();
  const uint64_t number = collective ? turn.number : 0;
  fail_(turn.group,
        verdicts::OperationsDiffer(
            group.info.name, number, number, issued,
            collective ? group.WhatIsSuspect(ranks.first, ranks.second) : ""));
}

// Returns whether `rank` gives or takes other counts in an all-to-all than the
// other ranks take or give. Then the group has failed.
bool Inquiries::JudgeCounts(const TurnId& turn, const HubGroup& group,
                            const Inquiry& inquiry, int rank) {
  const std::optional<Counts> mismatch = FindMismatch(inquiry, rank);
  if (!mismatch.has_value()) return false;
  fail_(turn.group, verdicts::CountsDiffer(
                        inquiry.subject,
                        {PartyOf(group.info, mismatch->from, star_.peers()),
                         PartyOf(group.info, mismatch->to, star_.peers()),
                         mismatch->gives, mismatch->takes}));
  return true;
}

// Returns whether ranks wait for each other in several groups: a rank that is
// missing here waits in another operation, where a rank is missing that waits
// in a third one, and so on, back to here. Then their groups have failed. Each
// rank was found missing while it waited, and can't have gone on since, unless
// its group fails. So the answers may be of different times.
bool Inquiries::JudgeDeadlock(const TurnId& start) {
  std::vector<TurnId> path;
  std::vector<verdicts::WaitsFor> waits;
  TurnId turn = start;
  do {
    if (std::find(path.begin(), path.end(), turn) != path.end()) return false;
    const auto inquiry = inquiries_.find(turn);
    const auto group = groups_.find(turn.group);
    if (inquiry == inquiries_.end() || group == groups_.end() ||
        !group->second.failure.ok()) {
      return false;
    }
    path.push_back(turn);
    const auto& positions = inquiry->second.positions;
    const auto next =
        std::find_if(positions.begin(), positions.end(), [](const auto& each) {
          return !each.second.here && !each.second.waits.group.empty();
        });
    if (next == positions.end()) return false;
    waits.push_back({inquiry->second.subject.operation,
                     PartyOf(group->second.info, next->first, star_.peers()),
                     next->second.waits_what});
    turn = next->second.waits;
  } while (!(turn == start));
  if (path.size() < 2) return false;
  const absl::Status why = verdicts::Deadlock(waits);
  for (const TurnId& each : path) fail_(each.group, why);
  return true;
}

void Inquiries::JudgeMissing(const TurnId& turn, const HubGroup& group,
                             Inquiry& inquiry,
                             const std::vector<int>& missing) {
  // If all ranks came, a rank that does not answer any more may be stopped.
  std::vector<int> ranks = missing;
  if (missing.empty()) {
    ranks.assign(inquiry.asked.begin(), inquiry.asked.end());
  }
  // The ranks that do not answer come first, since others may wait for them.
  const auto answers = std::stable_partition(
      ranks.begin(), ranks.end(),
      [&inquiry](int rank) { return inquiry.asked.count(rank) > 0; });
  const auto silent = static_cast<size_t>(answers - ranks.begin());
  const size_t to_blame = silent > 0 ? silent : ranks.size();
  // A verdict lists all missing ranks, and tells more about some.
  ranks.resize(std::min(ranks.size(), Blame::kMostRanks));
  std::vector<verdicts::Missing> described;
  described.reserve(ranks.size());
  for (const int rank : ranks) {
    described.push_back(Describe(group, inquiry, rank));
  }
  const std::string who =
      missing.empty() ? "" : verdicts::ListRanks(missing, kLongestPart);
  if (inquiry.expired) {
    return fail_(
        turn.group,
        missing.empty()
            ? verdicts::WasNotDone(inquiry.subject, inquiry.deadline, described)
            : verdicts::DidNotCome(
                  inquiry.subject, who, inquiry.deadline, described,
                  static_cast<int64_t>(to_blame -
                                       std::min(to_blame, described.size()))));
  }
  if (inquiry.slow_reported) return;
  inquiry.slow_reported = true;
  const std::string slow =
      verdicts::IsSlow(inquiry.subject.operation, who, described);
  SendToAll(group.info,
            Encode(SlowMessage{turn.group, slow.substr(0, kLongestText)}),
            star_);
}

verdicts::Missing Inquiries::Describe(const HubGroup& group,
                                      const Inquiry& inquiry, int rank) const {
  verdicts::Party party = PartyOf(group.info, rank, star_.peers());
  const auto position = inquiry.positions.find(rank);
  if (position == inquiry.positions.end() || inquiry.asked.count(rank) > 0) {
    const int job_rank = group.info.job_ranks[rank];
    return last_words_.OfSilent(party.name, star_.peers()[job_rank],
                                star_.SilentFor(job_rank));
  }
  party.rank.last = position->second.last;
  std::string said = verdicts::DescribeLastIssued(party.name, party.rank.last);
  if (!position->second.waits_what.empty()) {
    absl::StrAppend(&said, ", and waits for ", position->second.waits_what);
  }
  return {std::move(party), std::move(said)};
}

}  // namespace lockstep::internal_collective
