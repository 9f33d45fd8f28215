#include "lockstep/collective/control/control_plane.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/check.h"
#include "lockstep/base/end_process.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/control/group_store.h"
#include "lockstep/collective/control/hub.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {
namespace {

// The most time that counts between two ticks, which are 50 ms apart.
constexpr absl::Duration kLongestTick = absl::Milliseconds(100);

// The longest time for which Close waits if ranks did not come in time.
constexpr absl::Duration kStaysForHung = absl::Seconds(2);

bool SaysThatRanksHang(const absl::Status& why) {
  const std::optional<Blame> blame = BlameOf(why);
  return blame.has_value() && (blame->cause == Blame::Cause::kLate ||
                               blame->cause == Blame::Cause::kSilent);
}

// Returns a status that shares no memory with `status`.
absl::Status Copy(const absl::Status& status) { return Annotate(status, ""); }

}  // namespace

// ---- What a rank calls.

ControlPlane::ControlPlane(std::unique_ptr<Star> star,
                           const FailureTiming& timing)
    : star_(std::move(star)),
      timing_(timing),
      running_(kLongestTick),
      hub_(star_->rank() == 0
               ? std::make_unique<Hub>(*star_, last_words_, timing_)
               : nullptr) {
  star_->Start(*this);
}

ControlPlane::~ControlPlane() {
  Close(absl::ZeroDuration()).IgnoreError();
  star_ = nullptr;  // its thread calls us until then
}

Blame::Rank ControlPlane::self() const { return peers()[rank()].ForBlame(); }

absl::Status ControlPlane::Add(const GroupInfo& info,
                               const std::shared_ptr<GroupMember>& member) {
  MutexLock lock(mutex_);
  if (closed_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the world was closed, so the group '", info.name, "' can't be made"));
  }
  LOCKSTEP_RETURN_IF_ERROR(aborted_);
  LOCKSTEP_RETURN_IF_ERROR(hub_gone_);
  const bool first = groups_.count(info.key) == 0;
  LOCKSTEP_CHECK(first);
  Attached& group = groups_[info.key];
  group.member = member;
  return absl::OkStatus();
}

absl::Status ControlPlane::Attach(const GroupInfo& info,
                                  const std::shared_ptr<GroupMember>& member,
                                  absl::Duration deadline) {
  LOCKSTEP_RETURN_IF_ERROR(Add(info, member));
  star_->Send(0, Encode(OpenMessage{info}));
  Flush();
  absl::Status result;
  {
    const SteadyTime until = After(deadline);
    MutexLock lock(mutex_);
    for (bool late = false;; late = changed_.WaitUntil(mutex_, until)) {
      const auto group = groups_.find(info.key);
      if (group == groups_.end() || closed_) {
        return absl::FailedPreconditionError(absl::StrCat(
            "the world was closed while the group '", info.name, "' was made"));
      }
      result = group->second.failure;
      if (!result.ok()) break;
      if (group->second.opened) return absl::OkStatus();
      if (late) break;
    }
  }
  if (result.ok()) {
    result = verdicts::HubIsSilent(
        info.name, {peers()[0].Describe(), peers()[0].ForBlame()}, deadline);
    Fail(info.key, result);  // the others would wait for this rank
  }
  Detach(info.key);
  return result;
}

bool ControlPlane::Lives(const std::string& key) {
  const std::shared_ptr<GroupMember> member = Member(key);
  return member != nullptr && member->Lives();
}

void ControlPlane::Detach(const std::string& key) {
  {
    MutexLock lock(mutex_);
    if (groups_.count(key) == 0) return;
  }
  star_->Send(0, Encode(DetachMessage{key}));
  {
    MutexLock lock(mutex_);
    groups_.erase(key);
  }
  Flush();
}

void ControlPlane::Fail(const std::string& key, const absl::Status& why,
                        uint64_t after) {
  star_->Send(0, Encode(FailMessage{key, why, after}));
}

void ControlPlane::Abort(const absl::Status& why) {
  const absl::Status aborted =
      verdicts::AbortedJob({peers()[rank()].Describe(), self()}, why);
  {
    MutexLock lock(mutex_);
    if (aborted_.ok()) aborted_ = aborted;
  }
  star_->Send(0, Encode(FailMessage{/*group=*/"", aborted}));
  for (const std::string& key : Keys()) FailHere(key, aborted);
  Flush();
}

void ControlPlane::FailByHearsay(const std::string& key,
                                 const absl::Status& why) {
  star_->Send(0, Encode(HearsayMessage{key, why}));
}

void ControlPlane::Leave(const std::string& key, const LaneCounts& counts) {
  star_->Send(0, Encode(LeaveMessage{key, counts}));
}

void ControlPlane::SendMarks(const std::string& key,
                             const std::vector<Mark>& marks) {
  if (marks.empty()) return;
  star_->Send(0, Encode(MarksMessage{key, marks}));
}

void ControlPlane::ReportLate(const Late& late) {
  star_->Send(0, Encode(LateMessage{late}));
}

absl::Status ControlPlane::Close(absl::Duration patience) {
  {
    MutexLock lock(mutex_);
    if (closed_) return absl::OkStatus();
    closed_ = true;
    if (ranks_hang_) patience = std::min(patience, kStaysForHung);
    changed_.NotifyAll();
  }
  return RunOrEnd("leaving the job", [&] {
    LeaveGroups();
    return star_->Leave(patience);
  });
}

void ControlPlane::LeaveGroups() {
  for (const std::string& key : Keys()) {
    const auto member = Member(key);
    if (member != nullptr) Leave(key, member->Done());
    FailHere(key, verdicts::HasClosedWorld(self()));
    Detach(key);
  }
  // The others notice the end of rank 0 only when it is over, and some may wait
  // for rank 0 until then.
  if (rank() == 0) star_->Send(0, Encode(ClosedMessage{}));
}

// ---- Values.

std::unique_ptr<Store> ControlPlane::StoreOf(const std::string& key) {
  return std::make_unique<GroupStore>(*this, key);
}

void ControlPlane::SetValue(const std::string& key, const std::string& name,
                            const std::string& value) {
  star_->Send(0, Encode(SetMessage{key, name, value}));
  Flush();
}

absl::StatusOr<std::string> ControlPlane::AwaitValue(const std::string& key,
                                                     const std::string& name,
                                                     SteadyTime deadline) {
  bool asked = false;
  {
    MutexLock lock(mutex_);
    const auto group = groups_.find(key);
    asked = group == groups_.end() ||
            !group->second.values.insert({name, std::nullopt}).second;
  }
  if (!asked) star_->Send(0, Encode(GetMessage{key, name}));
  Flush();
  MutexLock lock(mutex_);
  while (true) {
    const auto group = groups_.find(key);
    if (group == groups_.end()) {
      return absl::CancelledError("the group is gone");
    }
    if (!group->second.failure.ok() && group->second.failed_after == 0) {
      return group->second.failure;
    }
    const auto& value = group->second.values[name];
    if (value.has_value()) return *value;
    if (changed_.WaitUntil(mutex_, deadline)) {
      return absl::DeadlineExceededError(
          absl::StrCat("'", name, "' of group ", key, " is not there yet"));
    }
  }
}

// ---- What rank 0 tells every rank.

template <typename M>
void ControlPlane::Deliver(absl::string_view message) {
  const std::optional<M> decoded = Decode<M>(message);
  if (decoded.has_value()) Handle(*decoded);
}

void ControlPlane::OnMessage(int from, absl::string_view message) {
  if (message.empty()) return;
  switch (TypeOf(message)) {
    case Message::kOpened:
      return Deliver<OpenedMessage>(message);
    case Message::kFailed:
      return Deliver<FailedMessage>(message);
    case Message::kLost:
      return Deliver<LostMessage>(message);
    case Message::kEcho:
      return Deliver<EchoMessage>(message);
    case Message::kLeft:
      return Deliver<LeftMessage>(message);
    case Message::kAsk:
      return Deliver<AskMessage>(message);
    case Message::kSlow:
      return Deliver<SlowMessage>(message);
    case Message::kValue:
      return Deliver<ValueMessage>(message);
    default:
      if (hub_ != nullptr) hub_->OnMessage(from, message);
  }
}

void ControlPlane::Handle(const OpenedMessage& opened) {
  MutexLock lock(mutex_);
  const auto group = groups_.find(opened.group);
  if (group != groups_.end()) {
    group->second.opened = true;
    ranks_hang_ = false;  // the ranks that did not come in time have come
  }
  changed_.NotifyAll();
}

void ControlPlane::Handle(const FailedMessage& failed) {
  FailHere(failed.group, failed.why, failed.after);
}

void ControlPlane::Handle(const LostMessage& lost) { first_loss_ = lost.why; }

void ControlPlane::Handle(const EchoMessage& echo) {
  star_->Send(0, Encode(EchoedMessage{echo.group, echo.round}));
}

void ControlPlane::Handle(const LeftMessage& left) {
  const auto member = Member(left.group);
  if (member != nullptr) member->OnLeft(left.rank, left.counts);
}

void ControlPlane::Handle(const AskMessage& ask) {
  const TurnId& turn = ask.turn;
  const auto member = Member(turn.group);
  Position position;
  if (member != nullptr) {
    position = member->Where(turn.lane, turn.number);
    const uint64_t thread = position.here ? 0 : member->OnlyThread();
    if (thread != 0) {
      for (const auto& other : Members()) {
        if (other->Waits(thread, position.waits, position.waits_what)) break;
      }
    }
  }
  star_->Send(0, Encode(AnswerMessage{turn, position}));
}

void ControlPlane::Handle(const SlowMessage& slow) {
  const auto member = Member(slow.group);
  if (member != nullptr) member->OnSlow(slow.what);
}

void ControlPlane::Handle(const ValueMessage& value) {
  MutexLock lock(mutex_);
  const auto group = groups_.find(value.group);
  if (group == groups_.end()) return;
  group->second.values[value.name] = value.value;
  changed_.NotifyAll();
}

// ---- What the star tells every rank.

void ControlPlane::OnGone(int rank, const absl::Status& how) {
  if (hub_ != nullptr) return hub_->OnGone(rank, how);
  // The rank is rank 0. Without it, no rank hears of the others.
  const absl::Status gone = verdicts::AfterFirstLoss(
      verdicts::IsGone(
          {peers()[rank].Describe(),
           last_words_.RankOf(peers()[rank], star_->SilentFor(rank))},
          how, /*reason=*/absl::OkStatus()),
      first_loss_);
  {
    MutexLock lock(mutex_);
    hub_gone_ = gone;
  }
  for (const std::string& key : Keys()) FailHere(key, gone);
}

void ControlPlane::OnTick() {
  ran_ += running_.Lap();
  for (const auto& member : Members()) member->OnTick();
  if (hub_ != nullptr) hub_->OnTick(ran_);
}

std::string ControlPlane::Beat() {
  std::vector<std::string> last;
  for (const auto& member : Members()) {
    std::string each = member->Where({}, 0).last;
    if (!each.empty()) last.push_back(std::move(each));
    std::string key;
    const std::vector<Mark> marks = member->TakeMarks(key);
    SendMarks(key, marks);
  }
  return absl::StrJoin(last, "; ").substr(0, kLongestText);
}

void ControlPlane::OnBeat(int from, absl::string_view beat) {
  last_words_.Hear(from, beat);
}

bool ControlPlane::Judges(const TurnId& turn) const {
  return hub_ != nullptr && hub_->Judges(turn);
}

verdicts::Missing ControlPlane::SilentHub() const {
  return last_words_.OfSilent(peers()[0].Describe(), peers()[0],
                              star_->SilentFor(0));
}

// ---- Groups at this rank.

std::shared_ptr<GroupMember> ControlPlane::Member(const std::string& key) {
  MutexLock lock(mutex_);
  const auto group = groups_.find(key);
  return group == groups_.end() ? nullptr : group->second.member.lock();
}

std::vector<std::shared_ptr<GroupMember>> ControlPlane::Members() {
  std::vector<std::shared_ptr<GroupMember>> members;
  MutexLock lock(mutex_);
  for (const auto& [key, group] : groups_) {
    if (auto member = group.member.lock()) members.push_back(std::move(member));
  }
  return members;
}

std::vector<std::string> ControlPlane::Keys() {
  std::vector<std::string> keys;
  MutexLock lock(mutex_);
  for (const auto& [key, group] : groups_) keys.push_back(key);
  return keys;
}

void ControlPlane::FailHere(const std::string& key, const absl::Status& why,
                            uint64_t after) {
  std::shared_ptr<GroupMember> member;
  {
    MutexLock lock(mutex_);
    const auto group = groups_.find(key);
    // A failure that lets operations end first gives way to one that lets
    // fewer.
    if (group == groups_.end() ||
        (!group->second.failure.ok() && after >= group->second.failed_after)) {
      return;
    }
    // Readers share nothing with `why`, whose count of references the thread
    // sanitizer does not see in a library.
    group->second.failure = Copy(why);
    ranks_hang_ = SaysThatRanksHang(why);
    group->second.failed_after = after;
    member = group->second.member.lock();
    changed_.NotifyAll();
  }
  if (member != nullptr) member->OnFailure(why, after);
}

}  // namespace lockstep::internal_collective
