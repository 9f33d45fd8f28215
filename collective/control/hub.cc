#include "lockstep/collective/control/hub.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/annotate.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {
namespace {

// Returns the property in which ranks differ that make a group, or "".
std::string PropertyThatDiffers(const GroupInfo& a, const GroupInfo& b) {
  if (a.backend != b.backend) return "backend";
  if (a.job_ranks != b.job_ranks) return "members";
  return "";
}

std::string ValueOf(const std::string& property, const GroupInfo& info) {
  if (property == "backend") return info.backend;
  return absl::StrJoin(info.members, ", ");
}

}  // namespace

Hub::Hub(Star& star, const LastWords& last_words, const FailureTiming& timing)
    : star_(star),
      last_words_(last_words),
      timing_(timing),
      inquiries_(groups_, last_words, timing, star,
                 [this](const std::string& group, const absl::Status& why) {
                   Fail(group, why);
                 }) {}

template <typename M>
void Hub::Deliver(int from, absl::string_view message) {
  const std::optional<M> decoded = Decode<M>(message);
  if (decoded.has_value()) Handle(from, *decoded);
}

void Hub::OnMessage(int from, absl::string_view message) {
  switch (TypeOf(message)) {
    case Message::kOpen:
      return Deliver<OpenMessage>(from, message);
    case Message::kFail:
      return Deliver<FailMessage>(from, message);
    case Message::kLeave:
      return Deliver<LeaveMessage>(from, message);
    case Message::kDetach:
      return Deliver<DetachMessage>(from, message);
    case Message::kClosed:
      return Deliver<ClosedMessage>(from, message);
    case Message::kHearsay:
      return Deliver<HearsayMessage>(from, message);
    case Message::kEchoed:
      return Deliver<EchoedMessage>(from, message);
    case Message::kLate:
      return Deliver<LateMessage>(from, message);
    case Message::kAnswer:
      return Deliver<AnswerMessage>(from, message);
    case Message::kMarks:
      return Deliver<MarksMessage>(from, message);
    case Message::kSet:
      return Deliver<SetMessage>(from, message);
    case Message::kGet:
      return Deliver<GetMessage>(from, message);
    default:
      return;
  }
}

HubGroup* Hub::Find(const std::string& group) {
  const auto found = groups_.find(group);
  return found == groups_.end() ? nullptr : &found->second;
}

// ---- How ranks join a group.

void Hub::Handle(int from, const OpenMessage& open) {
  const GroupInfo& info = open.info;
  const int rank = RankIn(info, from);
  if (rank < 0 || !MakesSense(info, star_.size())) return;
  // Rank 0 closes meanwhile, or the rank has aborted the job.
  if (gone_.count(from) > 0) return;
  HubGroup& group = groups_[info.key];
  if (group.joined.empty()) {
    group.info = info;
    group.first = rank;
  }
  const std::string what = PropertyThatDiffers(group.info, info);
  if (!what.empty()) return RefuseToOpen(from, group, info, what);
  group.joined.insert(rank);
  FailForWhatCameBefore(group, info);
  if (group.failure.ok()) return ConfirmOpen(from, group, info);
  star_.Send(from, Encode(FailedMessage{info.key, group.failure}));
}

void Hub::RefuseToOpen(int from, const HubGroup& group, const GroupInfo& info,
                       const std::string& what) {
  const Peer& peer = star_.peers()[from];
  const Peer& first = star_.peers()[group.info.job_ranks[group.first]];
  const absl::Status differ = verdicts::PropertiesDiffer(
      what, info.name,
      {{peer.Describe(), peer.ForBlame()}, ValueOf(what, info)},
      {{first.Describe(), first.ForBlame()}, ValueOf(what, group.info)});
  Fail(info.key, differ);
  if (!info.parent.empty()) Fail(info.parent, differ);
  star_.Send(from, Encode(FailedMessage{info.key, differ}));
}

// Fails a group that can't be made, because of events before all of its ranks
// have joined.
void Hub::FailForWhatCameBefore(const HubGroup& group, const GroupInfo& info) {
  const HubGroup* const parent = Find(info.parent);
  if (parent != nullptr && !parent->failure.ok()) {
    Fail(info.key, parent->failure);
  }
  // The rank that was lost first comes first, since others may have left
  // because of it.
  FailIfItIsGone(info, first_lost_);
  for (const auto& [job_rank, how] : gone_) FailIfItIsGone(info, job_rank);
  if (parent == nullptr) return;
  for (const auto& [left, counts] : parent->left) {
    const int job_rank = parent->info.job_ranks[left];
    const int rank = RankIn(info, job_rank);
    if (rank < 0 || group.joined.count(rank) > 0) continue;
    Fail(info.key,
         verdicts::CannotJoinAnyMore(
             parent->info.name,
             {absl::StrCat("rank ", left), star_.peers()[job_rank].ForBlame()},
             info.name));
  }
}

void Hub::FailIfItIsGone(const GroupInfo& info, int job_rank) {
  const auto gone = gone_.find(job_rank);
  if (gone == gone_.end() || RankIn(info, job_rank) < 0) return;
  Fail(info.key, gone->second);
  Detach(job_rank, info.key);
}

void Hub::ConfirmOpen(int from, const HubGroup& group, const GroupInfo& info) {
  // Ranks that have made a group again have got over what they had been told.
  if (group.joined.size() == info.members.size()) {
    for (const int job_rank : info.job_ranks) reasons_.erase(job_rank);
  }
  star_.Send(from, Encode(OpenedMessage{info.key}));
  for (const auto& [left, counts] : group.left) {
    star_.Send(from, Encode(LeftMessage{info.key, left, counts}));
  }
}

// ---- How groups fail.

void Hub::Handle(int from, const FailMessage& fail) {
  if (fail.group.empty()) return OnGone(from, fail.why);
  // UNAVAILABLE may only mean that a rank left without waiting for the verdict
  // on an operation that has expired.
  const bool yields =
      absl::IsUnavailable(fail.why) && inquiries_.HasExpired(fail.group);
  if (yields) return;
  // The sender may have failed to open the group. Another rank may open it only
  // later, and is told then.
  groups_.try_emplace(fail.group);
  Fail(fail.group,
       WithBlame(fail.why, BlameFor(fail.why, star_.peers()[from].ForBlame())),
       fail.after);
}

void Hub::Fail(const std::string& group, const absl::Status& why,
               uint64_t after) {
  HubGroup* const found = Find(group);
  if (found == nullptr) return;
  if (!found->failure.ok() && after >= found->failed_after) return;
  // Failures that let operations end first have the same reason on all ranks.
  const bool is_same = why.code() == found->failure.code() &&
                       why.message() == found->failure.message();
  if (found->failure.ok() || (after == 0 && !is_same)) {
    found->failure = verdicts::AfterFirstLoss(Excused(why), first_loss_);
  }
  found->failed_after = after;
  TellFailure(*found);
  inquiries_.Forget(group, after);
  FailWaitingChildren(group, why);
}

// Returns `why`. If `why` blames a rank because it left or was lost, and rank 0
// had told this rank of another failure before, the result has the blame of
// that failure instead.
absl::Status Hub::Excused(const absl::Status& why) const {
  const std::optional<Blame> blame = BlameOf(why);
  const bool is_gone = blame.has_value() &&
                       blame->code == absl::StatusCode::kUnavailable &&
                       blame->cause != Blame::Cause::kFailed;
  if (!is_gone) return why;
  const auto reason = reasons_.find(blame->rank());
  return reason == reasons_.end() ? why : InPlaceOf(reason->second, why);
}

// Tells the ranks that have joined. Each other rank learns of the failure, or
// of its own fault, when it joins.
void Hub::TellFailure(const HubGroup& group) {
  const std::string failed =
      Encode(FailedMessage{group.info.key, group.failure, group.failed_after});
  for (const int rank : group.joined) {
    const int job_rank = group.info.job_ranks[rank];
    // A failure with UNAVAILABLE follows from a rank that has gone.
    // AfterFirstLoss names the cause of such failures.
    if (!absl::IsUnavailable(group.failure)) reasons_[job_rank] = group.failure;
    star_.Send(job_rank, failed);
  }
}

// Fails the groups that are split off a group that failed, and wait for ranks
// of it in vain.
void Hub::FailWaitingChildren(const std::string& parent,
                              const absl::Status& why) {
  std::vector<std::string> children;
  for (const auto& [child, group] : groups_) {
    if (group.info.parent == parent &&
        group.joined.size() < group.info.members.size()) {
      children.push_back(child);
    }
  }
  for (const std::string& child : children) Fail(child, why);
}

// A transport fails when that of another rank does. The other rank may have
// aborted, left or died. Its message or its end may come later than this
// message, but comes before its echo.
void Hub::Handle(int, const HearsayMessage& hearsay) {
  HubGroup* const group = Find(hearsay.group);
  if (group == nullptr || !group->failure.ok() || !group->hearsay.ok()) return;
  group->hearsay = hearsay.why;
  group->heard_at = ran_;
  AskForEchoes(*group);
}

void Hub::AskForEchoes(HubGroup& group) {
  ++group.round;
  for (size_t rank = 0; rank < group.info.job_ranks.size(); ++rank) {
    group.echoes_due.insert(static_cast<int>(rank));
  }
  SendToAll(group.info, Encode(EchoMessage{group.info.key, group.round}),
            star_);
}

void Hub::Handle(int from, const EchoedMessage& echoed) {
  HubGroup* const group = Find(echoed.group);
  if (group == nullptr || group->round != echoed.round) return;
  group->echoes_due.erase(group->RankOf(from));
  JudgeHearsay(echoed.group);
}

void Hub::JudgeHearsay(const std::string& group) {
  HubGroup* const found = Find(group);
  if (found == nullptr || found->hearsay.ok() || !found->failure.ok()) return;
  if (inquiries_.HasExpired(group)) return;
  // A rank that has detached from the group has said all.
  for (const int rank : found->detached) found->echoes_due.erase(rank);
  if (ran_ - found->heard_at <= timing_.echoes) {
    if (!found->echoes_due.empty()) return;
    if (found->round < timing_.echo_rounds) return AskForEchoes(*found);
  }
  Fail(group, Blaming(Blame::Cause::kData, found->hearsay));
}

// ---- How ranks leave.

void Hub::Handle(int from, const LeaveMessage& leave) {
  HubGroup* const group = Find(leave.group);
  if (group == nullptr) return;
  const int rank = group->RankOf(from);
  if (rank < 0) return;
  group->left[rank] = leave.counts;
  TellThatItLeft(*group, rank, leave.counts);
  std::vector<std::string> children;
  for (const auto& [child, other] : groups_) {
    const int member = other.RankOf(from);
    if (other.info.parent == leave.group && member >= 0 &&
        other.joined.count(member) == 0) {
      children.push_back(child);
    }
  }
  for (const std::string& child : children) {
    Fail(child, verdicts::LeftBeforeJoining(group->info.name,
                                            {absl::StrCat("rank ", rank),
                                             star_.peers()[from].ForBlame()}));
  }
}

// Ranks of a group that has failed are not told, and those that know nothing of
// it any more. Ranks that are threads of one process tell each other.
void Hub::TellThatItLeft(const HubGroup& group, int rank,
                         const LaneCounts& counts) {
  if (!group.failure.ok() && group.failed_after == 0) return;
  if (group.info.backend == kLocalBackend) return;
  const std::string left = Encode(LeftMessage{group.info.key, rank, counts});
  for (size_t other = 0; other < group.info.job_ranks.size(); ++other) {
    if (group.detached.count(static_cast<int>(other)) > 0) continue;
    star_.Send(group.info.job_ranks[other], left);
  }
}

void Hub::Handle(int from, const DetachMessage& detach) {
  Detach(from, detach.group);
}

void Hub::Detach(int from, const std::string& group) {
  HubGroup* const found = Find(group);
  if (found == nullptr) return;
  const int rank = found->RankOf(from);
  if (rank < 0) return;
  found->detached.insert(rank);
  if (found->detached.size() < found->info.job_ranks.size()) return;
  groups_.erase(group);
  inquiries_.Forget(group, 0);
}

void Hub::Handle(int from, const ClosedMessage&) {
  if (from == 0) OnGone(0, absl::OkStatus());
}

void Hub::OnGone(int job_rank, const absl::Status& how) {
  // A rank that has aborted the job leaves it afterwards.
  if (gone_.count(job_rank) > 0) return;
  const absl::Status gone = DescribeGone(job_rank, how);
  gone_[job_rank] = gone;
  if (!how.ok() && first_loss_.ok()) {
    first_lost_ = job_rank;
    first_loss_ = InPlaceOf(gone, how);
    // The others are told now, since rank 0 may be gone, too, before a group
    // without the lost rank fails.
    const std::string lost = Encode(LostMessage{first_loss_});
    for (int other = 1; other < star_.size(); ++other) star_.Send(other, lost);
  }
  std::vector<std::string> keys;
  for (const auto& [key, group] : groups_) keys.push_back(key);
  for (const std::string& key : keys) {
    const HubGroup* const group = Find(key);
    if (group == nullptr) continue;
    const int rank = group->RankOf(job_rank);
    if (rank < 0 || group->detached.count(rank) > 0) continue;
    Fail(key, gone);
    Detach(job_rank, key);
  }
}

absl::Status Hub::DescribeGone(int job_rank, const absl::Status& how) const {
  const auto reason = reasons_.find(job_rank);
  const Peer& peer = star_.peers()[job_rank];
  return verdicts::AfterFirstLoss(
      verdicts::IsGone(
          {peer.Describe(),
           last_words_.RankOf(peer, star_.SilentFor(job_rank))},
          how, reason == reasons_.end() ? absl::OkStatus() : reason->second),
      first_loss_);
}

// ---- Operations.

void Hub::OnTick(absl::Duration ran) {
  ran_ = ran;
  inquiries_.OnTick(ran);
  std::vector<std::string> keys;
  for (const auto& [key, group] : groups_) {
    if (!group.hearsay.ok()) keys.push_back(key);
  }
  for (const std::string& key : keys) JudgeHearsay(key);
}

void Hub::Handle(int from, const LateMessage& late) {
  inquiries_.Report(from, late.late);
}

void Hub::Handle(int from, const AnswerMessage& answer) {
  inquiries_.Answer(from, answer.turn, answer.position);
}

void Hub::Handle(int from, const MarksMessage& marks) {
  HubGroup* const group = Find(marks.group);
  if (group == nullptr) return;
  const int rank = group->RankOf(from);
  if (rank < 0) return;
  for (const Mark& mark : marks.marks) {
    const auto difference = group->marks.Compare(rank, mark);
    if (difference.has_value()) return FailForMarks(*group, *difference);
  }
  group->marks.Trim(group->info.job_ranks.size());
}

void Hub::FailForMarks(const HubGroup& group,
                       const MarkTable::Difference& difference) {
  std::vector<verdicts::Issued> issued;
  for (const auto& [rank, what] : difference.issued) {
    issued.push_back({PartyOf(group.info, rank, star_.peers()), what});
  }
  const int rank = difference.rank, other = difference.other;
  Fail(group.info.key,
       verdicts::OperationsDiffer(
           group.info.name, group.marks.FirstUnknown(rank, other),
           difference.number, issued, group.WhatIsSuspect(rank, other)));
}

// ---- Values.

void Hub::Handle(int, const SetMessage& set) {
  HubGroup* const group = Find(set.group);
  if (group == nullptr) return;
  group->values[set.name] = set.value;
  for (const int job_rank : group->wanted[set.name]) {
    star_.Send(job_rank, Encode(ValueMessage{set.group, set.name, set.value}));
  }
  group->wanted.erase(set.name);
}

void Hub::Handle(int from, const GetMessage& get) {
  HubGroup* const group = Find(get.group);
  if (group == nullptr) return;
  const auto value = group->values.find(get.name);
  if (value == group->values.end()) {
    group->wanted[get.name].insert(from);
    return;
  }
  star_.Send(from, Encode(ValueMessage{get.group, get.name, value->second}));
}

}  // namespace lockstep::internal_collective
