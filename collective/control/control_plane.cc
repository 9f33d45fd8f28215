#include "lockstep/collective/control/control_plane.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/check.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/control/control_messages.h"

namespace lockstep::internal_collective {
namespace {

// Missing ranks of which more than their number is said.
constexpr size_t kMostDescribed = 16;

// What counts of the time between two ticks, which is 50 ms.
constexpr absl::Duration kLongestTick = absl::Milliseconds(100);

// How often rank 0 asks all before it believes a transport: what one says at
// first, such as that it leaves, has others say more.
constexpr int kEchoes = 2;

// Marks of a group that rank 0 keeps, to compare those of other ranks with.
constexpr size_t kMarksKept = 4096;

// The rank in a group of a rank of the job; -1: it is none of its members.
int RankIn(const GroupInfo& info, int job_rank) {
  const auto at =
      std::find(info.job_ranks.begin(), info.job_ranks.end(), job_rank);
  return at == info.job_ranks.end()
             ? -1
             : static_cast<int>(at - info.job_ranks.begin());
}

// The ranks of a group that an operation needs.
std::vector<int> Concerned(const GroupInfo& info, const LaneId& lane) {
  if (!lane.collective()) return {lane.from, lane.to};
  std::vector<int> ranks(info.job_ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
  return ranks;
}

// Whether it can be one of a job of `size` ranks.
bool MakesSense(const GroupInfo& info, int size) {
  std::set<int> seen;
  for (const int rank : info.job_ranks) {
    if (rank < 0 || rank >= size || !seen.insert(rank).second) return false;
  }
  return !info.job_ranks.empty() &&
         info.members.size() == info.job_ranks.size();
}

std::string Plural(const std::vector<int>& ranks) {
  std::string text = absl::StrCat("ranks ", absl::StrJoin(ranks, ", "));
  if (text.size() <= kLongestPart) return text;
  return absl::StrCat(ranks.size(), " ranks, ", text.substr(0, kLongestPart),
                      ", ...");
}

}  // namespace

// ---- What a rank calls.

ControlPlane::ControlPlane(std::unique_ptr<Star> star, const Patience& patience)
    : star_(std::move(star)), patience_(patience), running_(kLongestTick) {
  star_->Start(*this);
}

ControlPlane::~ControlPlane() {
  Close(absl::ZeroDuration()).IgnoreError();
  star_ = nullptr;  // its thread calls us until then
}

absl::Status ControlPlane::Attach(const GroupInfo& info,
                                  const std::shared_ptr<GroupMember>& member,
                                  absl::Duration deadline) {
  {
    MutexLock lock(mutex_);
    if (closed_) {
      return absl::FailedPreconditionError(
          absl::StrCat("the world was closed, so the group '", info.name,
                       "' can't be made"));
    }
    LOCKSTEP_RETURN_IF_ERROR(broken_);
    const auto hub = gone_.find(0);
    if (hub != gone_.end()) return hub->second;
    const bool first = groups_.count(info.key) == 0;
    LOCKSTEP_CHECK(first);
    Attached& group = groups_[info.key];
    group.info = info;
    group.member = member;
  }
  star_->Send(0, Pack(Message::kOpen).Info(info).Done());
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
    result = absl::DeadlineExceededError(absl::StrCat(
        "group '", info.name, "': ", peers()[0].Describe(),
        " did not answer within ", absl::FormatDuration(deadline)));
    Fail(info.key, result);  // the others would wait for this rank
  }
  Detach(info.key);
  return result;
}

bool ControlPlane::Lives(const std::string& key) {
  const std::shared_ptr<GroupMember> member = Member(key);
  return member != nullptr && member->Lives();
}

// When it throws, for want of memory, it can be called again.
void ControlPlane::Detach(const std::string& key) {
  std::string message = Pack(Message::kDetach).Text(key).Done();
  {
    MutexLock lock(mutex_);
    if (groups_.count(key) == 0) return;
  }
  star_->Send(0, std::move(message));
  MutexLock lock(mutex_);
  groups_.erase(key);
}

void ControlPlane::Fail(const std::string& key, const absl::Status& why,
                        uint64_t after) {
  star_->Send(0, Pack(Message::kFail)
                     .Text(key)
                     .Why(why)
                     .Number(static_cast<int64_t>(after))
                     .Done());
}

void ControlPlane::FailByHearsay(const std::string& key,
                                 const absl::Status& why) {
  star_->Send(0, Pack(Message::kHearsay).Text(key).Why(why).Done());
}

void ControlPlane::Leave(const std::string& key, const LaneCounts& counts) {
  star_->Send(0, Pack(Message::kLeave).Text(key).Counts(counts).Done());
}

void ControlPlane::SendMarks(const std::string& key,
                             const std::vector<Mark>& marks) {
  if (marks.empty()) return;
  star_->Send(0, Pack(Message::kMarks).Text(key).Marked(marks).Done());
}

void ControlPlane::ReportLate(const Late& late) {
  star_->Send(0, Pack(Message::kLate)
                     .Place(late.place)
                     .Text(absl::string_view(late.what).substr(0, kLongestPart))
                     .At(late.position)
                     .Number(late.expired)
                     .Number(absl::ToInt64Nanoseconds(late.deadline))
                     .Done());
}

absl::Status ControlPlane::Close(absl::Duration patience) {
  {
    MutexLock lock(mutex_);
    if (closed_) return absl::OkStatus();
    closed_ = true;
    changed_.NotifyAll();
  }
  // Where there is no memory for it, the others see that this rank leaves.
  const absl::Status left = CatchAll("leaving groups", [this] {
    LeaveGroups();
    return absl::OkStatus();
  });
  if (!left.ok()) EndGroups(left);
  return star_->Leave(patience);
}

void ControlPlane::LeaveGroups() {
  std::vector<std::string> keys;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, group] : groups_) keys.push_back(key);
  }
  for (const std::string& key : keys) {
    const auto member = Member(key);
    if (member != nullptr) Leave(key, member->Done());
    FailHere(key, absl::UnavailableError(absl::StrCat(
                      "rank ", rank(), " of the job has closed its world")));
    Detach(key);
  }
  // The others hear of rank 0's end when it is over, and some may wait for it.
  if (rank() == 0) star_->Send(0, Pack(Message::kClosed).Done());
}

// ---- Values.

class ControlPlane::GroupStore : public Store {
 public:
  GroupStore(ControlPlane& plane, std::string key)
      : plane_(plane), key_(std::move(key)) {}

  absl::Status Set(absl::string_view key, absl::string_view value) override {
    LOCKSTEP_RETURN_IF_ERROR(CheckStoreKey(key));
    LOCKSTEP_RETURN_IF_ERROR(CheckStoreValue(key, value));
    plane_.star_->Send(
        0, Pack(Message::kSet).Text(key_).Text(key).Text(value).Done());
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Get(absl::string_view key,
                                  absl::Time until) override {
    LOCKSTEP_RETURN_IF_ERROR(CheckStoreKey(key));
    const SteadyTime deadline = After(until - absl::Now());
    const std::string name(key);
    bool asked = false;
    {
      MutexLock lock(plane_.mutex_);
      const auto group = plane_.groups_.find(key_);
      asked = group == plane_.groups_.end() ||
              !group->second.values.insert({name, std::nullopt}).second;
    }
    if (!asked) {
      plane_.star_->Send(0, Pack(Message::kGet).Text(key_).Text(key).Done());
    }
    MutexLock lock(plane_.mutex_);
    while (true) {
      const auto group = plane_.groups_.find(key_);
      if (group == plane_.groups_.end()) {
        return absl::CancelledError("the group is gone");
      }
      if (!group->second.failure.ok() && group->second.failed_after == 0) {
        return group->second.failure;
      }
      const auto& value = group->second.values[name];
      if (value.has_value()) return *value;
      if (plane_.changed_.WaitUntil(plane_.mutex_, deadline)) {
        return absl::DeadlineExceededError(
            absl::StrCat("'", key, "' of group ", key_, " is not there yet"));
      }
    }
  }

 private:
  ControlPlane& plane_;
  const std::string key_;
};

std::unique_ptr<Store> ControlPlane::StoreOf(const std::string& key) {
  return std::make_unique<GroupStore>(*this, key);
}

// ---- What the star tells every rank.

void ControlPlane::OnMessage(int from, absl::string_view message) {
  if (message.empty()) return;
  const auto kind = static_cast<Message>(message[0]);
  Unpack in(message.substr(1));
  switch (kind) {
    case Message::kOpen: {
      const GroupInfo info = in.Info();
      if (in.good()) HubOpen(from, info);
      return;
    }
    case Message::kOpened: {
      const std::string key = in.Text();
      MutexLock lock(mutex_);
      const auto group = groups_.find(key);
      if (group != groups_.end()) group->second.opened = true;
      changed_.NotifyAll();
      return;
    }
    case Message::kFail: {
      const std::string key = in.Text();
      const absl::Status why = in.Why();
      const auto after = static_cast<uint64_t>(in.Number());
      // A rank that has left may just not have waited for the verdict.
      const bool yields = absl::IsUnavailable(why) && HubHasExpired(key);
      if (!in.good() || yields) return;
      // The sender may have failed to open the group, and another may open it
      // only later: HubOpen tells that one.
      hub_groups_.try_emplace(key);
      HubFail(key, why, after);
      return;
    }
    case Message::kFailed: {
      const std::string key = in.Text();
      const absl::Status why = in.Why();
      const auto after = static_cast<uint64_t>(in.Number());
      if (in.good()) FailHere(key, why, after);
      return;
    }
    case Message::kLost: {
      const absl::Status why = in.Why();
      if (in.good() && rank() != 0) first_loss_ = why;
      return;
    }
    case Message::kHearsay: {
      const std::string key = in.Text();
      const absl::Status why = in.Why();
      if (in.good()) HubHearsay(key, why);
      return;
    }
    case Message::kEcho: {
      const std::string key = in.Text();
      const int64_t echoes = in.Number();
      star_->Send(0, Pack(Message::kEchoed).Text(key).Number(echoes).Done());
      return;
    }
    case Message::kEchoed: {
      const std::string key = in.Text();
      const auto echoes = static_cast<int>(in.Number());
      if (in.good()) HubEchoed(from, key, echoes);
      return;
    }
    case Message::kLeave: {
      const std::string key = in.Text();
      const LaneCounts counts = in.Counts();
      if (in.good()) HubLeave(from, key, counts);
      return;
    }
    case Message::kLeft: {
      const std::string key = in.Text();
      const int rank = in.Rank();
      const LaneCounts counts = in.Counts();
      const auto member = Member(key);
      if (in.good() && member != nullptr) member->OnLeft(rank, counts);
      return;
    }
    case Message::kDetach: {
      const std::string key = in.Text();
      HubDetach(from, key);
      return;
    }
    case Message::kClosed: {
      if (from == 0 && rank() == 0) OnGone(0, absl::OkStatus());
      return;
    }
    case Message::kMarks: {
      const std::string key = in.Text();
      const std::vector<Mark> marks = in.Marked();
      if (in.good()) HubMarks(from, key, marks);
      return;
    }
    case Message::kLate: {
      Late late;
      late.place = in.Place();
      late.what = in.Text();
      late.position = in.At();
      late.expired = in.Number() != 0;
      late.deadline = absl::Nanoseconds(in.Number());
      if (in.good()) HubLate(from, late);
      return;
    }
    case Message::kAsk: {
      const PlaceId place = in.Place();
      if (in.good()) Answer(place);
      return;
    }
    case Message::kAnswer: {
      const PlaceId place = in.Place();
      const Position position = in.At();
      if (in.good()) HubAnswer(from, place, position);
      return;
    }
    case Message::kSlow: {
      const std::string key = in.Text();
      const std::string what = in.Text();
      const auto member = Member(key);
      if (in.good() && member != nullptr) member->OnSlow(what);
      return;
    }
    case Message::kAgreed: {
      const std::string key = in.Text();
      const uint64_t agreed = in.Number();
      const auto member = Member(key);
      if (in.good() && member != nullptr) member->OnAgreed(agreed);
      return;
    }
    case Message::kSet: {
      const std::string key = in.Text();
      const std::string name = in.Text();
      const std::string value = in.Text();
      if (in.good()) HubSet(key, name, value);
      return;
    }
    case Message::kGet: {
      const std::string key = in.Text();
      const std::string name = in.Text();
      if (in.good()) HubGet(from, key, name);
      return;
    }
    case Message::kValue: {
      const std::string key = in.Text();
      const std::string name = in.Text();
      std::string value = in.Text();
      MutexLock lock(mutex_);
      const auto group = groups_.find(key);
      if (in.good() && group != groups_.end()) {
        group->second.values[name] = std::move(value);
      }
      changed_.NotifyAll();
      return;
    }
  }
}

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

void ControlPlane::FailHere(const std::string& key, const absl::Status& why,
                            uint64_t after) {
  std::shared_ptr<GroupMember> member;
  {
    MutexLock lock(mutex_);
    const auto group = groups_.find(key);
    // One that lets operations end first gives way to one that lets fewer.
    if (group == groups_.end() ||
        (!group->second.failure.ok() && after >= group->second.failed_after)) {
      return;
    }
    // Who reads it shares nothing with `why`, whose count of references the
    // thread sanitizer does not see in a library.
    group->second.failure = absl::Status(why.code(), why.message());
    group->second.failed_after = after;
    member = group->second.member.lock();
    changed_.NotifyAll();
  }
  if (member != nullptr) member->OnFailure(why, after);
}

void ControlPlane::OnGone(int rank, const absl::Status& why) {
  absl::Status gone = why;
  if (gone.ok()) {
    gone = absl::UnavailableError(
        absl::StrCat(peers()[rank].Describe(), " has left the job"));
  }
  const auto last = last_words_.find(rank);
  if (last != last_words_.end() && !last->second.issued.empty()) {
    gone = absl::Status(
        gone.code(), absl::StrCat(gone.message(), "; it ", LastWordsOf(rank)));
  }
  const auto told = told_.find(rank);
  if (why.ok() && told != told_.end()) {
    gone = absl::Status(gone.code(),
                        absl::StrCat(gone.message(), "; it had been told: ",
                                     told->second.message()));
  }
  gone = AfterFirstLoss(gone);
  std::vector<std::string> keys;
  {
    MutexLock lock(mutex_);
    gone_[rank] = gone;
    for (const auto& [key, group] : groups_) keys.push_back(key);
  }
  if (this->rank() != 0) {
    // Without rank 0 nobody would know of the others.
    for (const std::string& key : keys) FailHere(key, gone);
    return;
  }
  if (!why.ok() && first_loss_.ok()) {
    first_lost_ = rank;
    first_loss_ = why;
    // Rank 0 may be gone, too, before a group fails that did not need `rank`.
    const std::string lost = Pack(Message::kLost).Why(why).Done();
    for (int other = 1; other < size(); ++other) star_->Send(other, lost);
  }
  keys.clear();
  for (const auto& [key, group] : hub_groups_) keys.push_back(key);
  for (const std::string& key : keys) {
    const auto group = hub_groups_.find(key);
    if (group == hub_groups_.end()) continue;
    const int member = RankIn(group->second.info, rank);
    if (member < 0 || group->second.detached.count(member) > 0) continue;
    HubFail(key, gone);
    HubDetach(rank, key);
  }
}

// What ends because others have gone may come of the loss that came first, also
// where that rank was not needed.
absl::Status ControlPlane::AfterFirstLoss(const absl::Status& why) const {
  if (!absl::IsUnavailable(why) || first_loss_.ok() ||
      absl::StrContains(why.message(), first_loss_.message())) {
    return why;
  }
  return absl::UnavailableError(
      absl::StrCat(why.message(), "; before that, ", first_loss_.message()));
}

void ControlPlane::OnTick() {
  ran_ += running_.Lap();
  for (const auto& member : Members()) member->OnTick();
  std::vector<PlaceId> places;
  for (const auto& [place, inquiry] : inquiries_) {
    if (inquiry.expired || !inquiry.told_slow) places.push_back(place);
  }
  for (const PlaceId& place : places) HubJudge(place, -1);
  std::vector<std::string> keys;
  for (const auto& [key, group] : hub_groups_) {
    if (!group.hearsay.ok()) keys.push_back(key);
  }
  for (const std::string& key : keys) HubJudgeHearsay(key);
}

void ControlPlane::OnBroken(const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    broken_ = why;
  }
  EndGroups(why);
}

// Fails all that lives here, and allocates nothing.
void ControlPlane::EndGroups(const absl::Status& why) {
  while (true) {
    std::shared_ptr<GroupMember> member;
    {
      MutexLock lock(mutex_);
      const auto group =
          std::find_if(groups_.begin(), groups_.end(), [](const auto& each) {
            return each.second.failure.ok() || each.second.failed_after > 0;
          });
      changed_.NotifyAll();
      if (group == groups_.end()) return;
      group->second.failure = why;
      group->second.failed_after = 0;
      member = group->second.member.lock();
    }
    if (member != nullptr) member->OnFailure(why, 0);
  }
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
  last_words_[from] = {std::string(beat), SteadyNow()};
}

// Returns what a rank had issued when it last told of itself, or "" where it
// never has.
std::string ControlPlane::LastWordsOf(int job_rank) const {
  const auto last = last_words_.find(job_rank);
  if (last == last_words_.end()) return "";
  const absl::Duration ago = absl::FromChrono(SteadyNow() - last->second.heard);
  return absl::StrCat(
      "had ",
      last->second.issued.empty()
          ? "issued nothing"
          : absl::StrCat("last issued ", last->second.issued),
      " as of ", absl::FormatDuration(absl::Trunc(ago, absl::Milliseconds(1))),
      " ago");
}

std::string ControlPlane::DescribeHubSilence() const {
  return absl::StrCat(peers()[0].Describe(), " ", DescribeSilence(0));
}

std::string ControlPlane::DescribeSilence(int job_rank) const {
  const std::string last = LastWordsOf(job_rank);
  return absl::StrCat(
      last.empty() ? "has not told yet what it has issued" : last,
      ", and is silent for ",
      absl::FormatDuration(
          absl::Trunc(star_->SilentFor(job_rank), absl::Milliseconds(1))));
}

void ControlPlane::Answer(const PlaceId& place) {
  const auto member = Member(place.group);
  Position position;
  if (member != nullptr) {
    position = member->Where(place.lane, place.number);
    if (!position.here) {
      const uint64_t thread = member->OnlyThread();
      for (const auto& other : Members()) {
        if (thread != 0 &&
            other->Waits(thread, position.waits, position.waits_what)) {
          break;
        }
      }
    }
  }
  star_->Send(0, Pack(Message::kAnswer).Place(place).At(position).Done());
}

// ---- What rank 0 decides.

// What a rank has issued is compared with what another one had by the same
// number: where nothing else compares it, it is found out here, afterwards.
void ControlPlane::HubMarks(int from, const std::string& key,
                            const std::vector<Mark>& marks) {
  const auto found = hub_groups_.find(key);
  if (found == hub_groups_.end()) return;
  GroupAtHub& group = found->second;
  const int rank = RankIn(group.info, from);
  if (rank < 0) return;
  for (const Mark& mark : marks) {
    const auto& [at, is_new] = group.marks.insert({mark.number, {rank, mark}});
    if (is_new) continue;
    const Mark& other = at->second.second;
    if (other.digest == mark.digest) {
      for (const int same : {rank, at->second.first}) {
        uint64_t& agreed = group.agreed[same];
        agreed = std::max(agreed, mark.number);
      }
      continue;
    }
    std::map<int, std::string> issued = {{rank, mark.what},
                                         {at->second.first, other.what}};
    std::vector<std::string> sides;
    for (const auto& [which, what] : issued) {
      sides.push_back(absl::StrCat(HubDescribe(group, which), " issued ",
                                   what.empty() ? "something else" : what));
    }
    const uint64_t next = HubNextOf(group, rank, at->second.first);
    return HubFail(
        key,
        absl::FailedPreconditionError(absl::StrCat(
            "the ranks of group '", group.info.name, "' differ at operation ",
            next < mark.number
                ? absl::StrCat("#", next, " or one after it, up to ")
                : "",
            "#", mark.number, ": ", absl::StrJoin(sides, ", and "),
            HubSuspects(group, rank, at->second.first))));
  }
  HubDropMarks(group);
}

// The first collective of which it is not known that both ranks have issued the
// same.
uint64_t ControlPlane::HubNextOf(const GroupAtHub& group, int rank,
                                 int other) const {
  const auto agreed = [&group](int which) {
    const auto found = group.agreed.find(which);
    return found == group.agreed.end() ? 0 : found->second;
  };
  return 1 + std::min(agreed(rank), agreed(other));
}

// What two ranks that differ must no longer rely on: only a device, whose ranks
// send marks, does what they differ in, and in a strict group not even that.
std::string ControlPlane::HubSuspects(const GroupAtHub& group, int rank,
                                      int other) const {
  if (group.info.strict || (group.marks.empty() && group.agreed.empty())) {
    return "";
  }
  return absl::StrCat(
      "; it may have ended all the same, and what came of the group's "
      "operations from #",
      HubNextOf(group, rank, other), " on is suspect");
}

// Those that all have agreed on tell nothing any more. Of too many others, some
// of all ages are kept: the rank that is far behind is yet to come to them.
void ControlPlane::HubDropMarks(GroupAtHub& group) {
  uint64_t agreed = 0;
  if (group.agreed.size() == group.info.job_ranks.size()) {
    agreed = group.agreed.begin()->second;
    for (const auto& [rank, number] : group.agreed) {
      agreed = std::min(agreed, number);
    }
  }
  auto& marks = group.marks;
  marks.erase(marks.begin(), marks.upper_bound(agreed));
  if (!group.info.strict && marks.size() > kMarksKept) {
    for (uint64_t stride = 2; marks.size() > kMarksKept / 2; stride *= 2) {
      for (auto i = marks.begin(); i != marks.end();) {
        i = i->first % stride == 0 ? std::next(i) : marks.erase(i);
      }
    }
  }
  if (!group.info.strict || agreed == group.told_agreed) return;
  group.told_agreed = agreed;
  HubTell(group, Pack(Message::kAgreed)
                     .Text(group.info.key)
                     .Number(static_cast<int64_t>(agreed))
                     .Done());
}

void ControlPlane::HubTell(const GroupAtHub& group,
                           const std::string& message) {
  for (const int job_rank : group.info.job_ranks) {
    star_->Send(job_rank, message);
  }
}

void ControlPlane::HubOpen(int from, const GroupInfo& info) {
  const int rank = RankIn(info, from);
  if (rank < 0 || !MakesSense(info, size())) return;
  {
    MutexLock lock(mutex_);
    if (gone_.count(from) > 0) return;  // rank 0, which closes meanwhile
  }
  GroupAtHub& group = hub_groups_[info.key];
  if (group.joined.empty()) {
    group.info = info;
    group.first = rank;
  }
  if (group.info.job_ranks != info.job_ranks ||
      group.info.backend != info.backend || group.info.strict != info.strict) {
    const std::string what = group.info.backend != info.backend ? "backend"
                             : group.info.strict != info.strict
                                 ? "option 'strict'"
                                 : "members";
    const auto said = [&what](const GroupInfo& info) -> std::string {
      if (what == "backend") return info.backend;
      if (what == "members") return absl::StrJoin(info.members, ", ");
      return info.strict ? "true" : "false";
    };
    const absl::Status differ = absl::FailedPreconditionError(absl::StrCat(
        "the ranks differ in the ", what, " of group '", info.name,
        "': ", peers()[from].Describe(), " has ", said(info), ", and ",
        peers()[group.info.job_ranks[group.first]].Describe(), " has ",
        said(group.info)));
    HubFail(info.key, differ);
    if (!info.parent.empty()) HubFail(info.parent, differ);
    star_->Send(
        from,
        Pack(Message::kFailed).Text(info.key).Why(differ).Number(0).Done());
    return;
  }
  group.joined.insert(rank);
  // What has come about before all of them are there.
  const auto parent = hub_groups_.find(info.parent);
  if (parent != hub_groups_.end() && !parent->second.failure.ok()) {
    HubFail(info.key, parent->second.failure);
  }
  // Others may have left because of the first loss.
  std::vector<int> job_ranks = info.job_ranks;
  std::stable_partition(job_ranks.begin(), job_ranks.end(),
                        [this](int each) { return each == first_lost_; });
  for (const int job_rank : job_ranks) {
    absl::Status gone;
    {
      MutexLock lock(mutex_);
      const auto found = gone_.find(job_rank);
      if (found != gone_.end()) gone = found->second;
    }
    if (!gone.ok()) {
      HubFail(info.key, gone);
      HubDetach(job_rank, info.key);
    } else if (parent != hub_groups_.end()) {
      const GroupAtHub& above = parent->second;
      const int above_rank = RankIn(above.info, job_rank);
      if (above.left.count(above_rank) > 0 &&
          group.joined.count(RankIn(info, job_rank)) == 0) {
        HubFail(info.key,
                absl::UnavailableError(absl::StrCat(
                    "rank ", above_rank, " of group '", above.info.name,
                    "' has left it, and so can't join the group '", info.name,
                    "'")));
      }
    }
  }
  if (!group.failure.ok()) {
    star_->Send(from, Pack(Message::kFailed)
                          .Text(info.key)
                          .Why(group.failure)
                          .Number(0)
                          .Done());
    return;
  }
  // Ranks that have made a group again have got over what they had been told.
  if (group.joined.size() == info.members.size()) {
    for (const int job_rank : info.job_ranks) told_.erase(job_rank);
  }
  star_->Send(from, Pack(Message::kOpened).Text(info.key).Done());
  for (const auto& [left, counts] : group.left) {
    star_->Send(
        from,
        Pack(Message::kLeft).Text(info.key).Number(left).Counts(counts).Done());
  }
}

void ControlPlane::HubFail(const std::string& key, const absl::Status& why,
                           uint64_t after) {
  const auto found = hub_groups_.find(key);
  if (found == hub_groups_.end()) return;
  GroupAtHub& group = found->second;
  if (!group.failure.ok() && after >= group.failed_after) return;
  // All who let operations end first do it for the same reason.
  if (group.failure.ok() || (after == 0 && why != group.failure)) {
    group.failure = AfterFirstLoss(why);
  }
  group.failed_after = after;
  // AfterFirstLoss tells of what comes of ranks that have gone.
  if (!absl::IsUnavailable(group.failure)) {
    for (const int rank : group.joined) {
      told_[group.info.job_ranks[rank]] = group.failure;
    }
  }
  const std::string failed = Pack(Message::kFailed)
                                 .Text(key)
                                 .Why(group.failure)
                                 .Number(static_cast<int64_t>(after))
                                 .Done();
  // The others learn what is wrong with them, or this, when they join.
  for (const int rank : group.joined) {
    star_->Send(group.info.job_ranks[rank], failed);
  }
  HubForgetInquiries(key, after);
  // Groups that are split off and wait for members of this one wait in vain.
  std::vector<std::string> children;
  for (const auto& [child, other] : hub_groups_) {
    if (other.info.parent == key &&
        other.joined.size() < other.info.members.size()) {
      children.push_back(child);
    }
  }
  for (const std::string& child : children) HubFail(child, why);
}

// A transport fails when another rank's does, which may have aborted, left or
// died: and that rank's word of it, or its end, may come later. It comes before
// its echo.
void ControlPlane::HubHearsay(const std::string& key, const absl::Status& why) {
  const auto found = hub_groups_.find(key);
  if (found == hub_groups_.end()) return;
  GroupAtHub& group = found->second;
  if (!group.failure.ok() || !group.hearsay.ok()) return;
  group.hearsay = why;
  group.heard_at = ran_;
  HubAskForEchoes(group);
}

void ControlPlane::HubAskForEchoes(GroupAtHub& group) {
  ++group.echoes;
  for (size_t rank = 0; rank < group.info.job_ranks.size(); ++rank) {
    group.echoes_due.insert(static_cast<int>(rank));
  }
  HubTell(
      group,
      Pack(Message::kEcho).Text(group.info.key).Number(group.echoes).Done());
}

void ControlPlane::HubEchoed(int from, const std::string& key, int echoes) {
  const auto found = hub_groups_.find(key);
  if (found == hub_groups_.end() || found->second.echoes != echoes) return;
  found->second.echoes_due.erase(RankIn(found->second.info, from));
  HubJudgeHearsay(key);
}

void ControlPlane::HubJudgeHearsay(const std::string& key) {
  const auto found = hub_groups_.find(key);
  if (found == hub_groups_.end()) return;
  GroupAtHub& group = found->second;
  if (group.hearsay.ok() || !group.failure.ok()) return;
  if (HubHasExpired(key)) return;
  // Who has nothing to do with the group any more has said all.
  for (const int rank : group.detached) group.echoes_due.erase(rank);
  if (ran_ - group.heard_at <= patience_.echoes) {
    if (!group.echoes_due.empty()) return;
    if (group.echoes < kEchoes) return HubAskForEchoes(group);
  }
  HubFail(key, group.hearsay);
}

// Whether an operation of the group has expired: a verdict on that will fail
// the group, and soon.
bool ControlPlane::HubHasExpired(const std::string& key) const {
  return std::any_of(
      inquiries_.begin(), inquiries_.end(), [&key](const auto& inquiry) {
        return inquiry.first.group == key && inquiry.second.expired;
      });
}

// But for what may end before a failure; 0: nothing does.
void ControlPlane::HubForgetInquiries(const std::string& key, uint64_t after) {
  auto i = inquiries_.lower_bound({key, {}, after == 0 ? 0 : after + 1});
  while (i != inquiries_.end() && i->first.group == key &&
         (after == 0 || i->first.lane.collective())) {
    i = inquiries_.erase(i);
  }
}

void ControlPlane::HubLeave(int from, const std::string& key,
                            const LaneCounts& counts) {
  const auto found = hub_groups_.find(key);
  if (found == hub_groups_.end()) return;
  const GroupInfo& info = found->second.info;
  const int rank = RankIn(info, from);
  if (rank < 0) return;
  found->second.left[rank] = counts;
  HubTell(found->second,
          Pack(Message::kLeft).Text(key).Number(rank).Counts(counts).Done());
  std::vector<std::string> children;
  for (const auto& [child, group] : hub_groups_) {
    const int member = RankIn(group.info, from);
    if (group.info.parent == key && member >= 0 &&
        group.joined.count(member) == 0) {
      children.push_back(child);
    }
  }
  for (const std::string& child : children) {
    HubFail(child, absl::UnavailableError(absl::StrCat(
                       "rank ", rank, " of group '", info.name,
                       "' has left it before it joined this one")));
  }
}

void ControlPlane::HubDetach(int from, const std::string& key) {
  const auto found = hub_groups_.find(key);
  if (found == hub_groups_.end()) return;
  GroupAtHub& group = found->second;
  const int rank = RankIn(group.info, from);
  if (rank < 0) return;
  group.detached.insert(rank);
  if (group.detached.size() < group.info.job_ranks.size()) return;
  hub_groups_.erase(found);
  HubForgetInquiries(key, 0);
}

void ControlPlane::HubSet(const std::string& key, const std::string& name,
                          const std::string& value) {
  const auto found = hub_groups_.find(key);
  if (found == hub_groups_.end()) return;
  found->second.values[name] = value;
  for (const int job_rank : found->second.wanted[name]) {
    star_->Send(job_rank,
                Pack(Message::kValue).Text(key).Text(name).Text(value).Done());
  }
  found->second.wanted.erase(name);
}

void ControlPlane::HubGet(int from, const std::string& key,
                          const std::string& name) {
  const auto found = hub_groups_.find(key);
  if (found == hub_groups_.end()) return;
  const auto value = found->second.values.find(name);
  if (value == found->second.values.end()) {
    found->second.wanted[name].insert(from);
    return;
  }
  star_->Send(
      from,
      Pack(Message::kValue).Text(key).Text(name).Text(value->second).Done());
}

bool ControlPlane::GroupAtHub::DidItsPart(int rank,
                                          const PlaceId& place) const {
  const auto counts = left.find(rank);
  if (detached.count(rank) == 0 || counts == left.end()) return false;
  const auto count = counts->second.find(place.lane);
  return count != counts->second.end() && count->second >= place.number;
}

void ControlPlane::HubAsk(const GroupAtHub& group, const PlaceId& place,
                          Inquiry& inquiry, int except) {
  const std::string ask = Pack(Message::kAsk).Place(place).Done();
  inquiry.asked_at = ran_;
  for (const int rank : Concerned(group.info, place.lane)) {
    if (rank == except || group.DidItsPart(rank, place)) continue;
    inquiry.asked.insert(rank);
    star_->Send(group.info.job_ranks[rank], ask);
  }
}

void ControlPlane::HubLate(int from, const Late& late) {
  const auto found = hub_groups_.find(late.place.group);
  if (found == hub_groups_.end()) return;
  const GroupAtHub& group = found->second;
  const bool ends_first =
      group.failed_after > 0 && (!late.place.lane.collective() ||
                                 late.place.number <= group.failed_after);
  if (!group.failure.ok() && !ends_first) return;
  const int size = static_cast<int>(group.info.job_ranks.size());
  const LaneId& lane = late.place.lane;
  if (!lane.collective() &&
      (lane.from >= size || lane.to < 0 || lane.to >= size)) {
    return;
  }
  const int rank = RankIn(group.info, from);
  if (rank < 0) return;
  // Operations end in order, so earlier ones of this lane have, here.
  auto earlier = inquiries_.lower_bound({late.place.group, lane, 0});
  while (earlier != inquiries_.end() && earlier->first < late.place) {
    earlier = earlier->second.expired ? std::next(earlier)
                                      : inquiries_.erase(earlier);
  }
  const bool first = inquiries_.count(late.place) == 0;
  Inquiry& inquiry = inquiries_[late.place];
  inquiry.positions[rank] = late.position;
  inquiry.asked.erase(rank);
  if (first) inquiry.what = late.what;
  if (late.expired && !inquiry.expired) {
    inquiry.expired = true;
    inquiry.what = late.what;
    inquiry.deadline = late.deadline;
    HubAsk(group, late.place, inquiry, rank);
  } else if (first) {
    HubAsk(group, late.place, inquiry, rank);
  }
  HubAskAgain(from, late.place);
  HubJudge(late.place, rank);
}

// A job rank that waits at `place` may have waited for nothing yet when it was
// asked about operations for which others wait.
void ControlPlane::HubAskAgain(int job_rank, const PlaceId& place) {
  for (const auto& [other, inquiry] : inquiries_) {
    const auto group = hub_groups_.find(other.group);
    if (other == place || group == hub_groups_.end()) continue;
    const auto position =
        inquiry.positions.find(RankIn(group->second.info, job_rank));
    if (position != inquiry.positions.end() && !position->second.here &&
        position->second.waits.group.empty()) {
      star_->Send(job_rank, Pack(Message::kAsk).Place(other).Done());
    }
  }
}

void ControlPlane::HubAnswer(int from, const PlaceId& place,
                             const Position& position) {
  const auto inquiry = inquiries_.find(place);
  const auto group = hub_groups_.find(place.group);
  if (inquiry == inquiries_.end() || group == hub_groups_.end()) return;
  const int rank = RankIn(group->second.info, from);
  if (rank < 0) return;
  inquiry->second.asked.erase(rank);
  inquiry->second.positions[rank] = position;
  HubJudge(place, rank);
}

std::string ControlPlane::HubDescribe(const GroupAtHub& group, int rank) const {
  const int job_rank = group.info.job_ranks[rank];
  const Peer& peer = peers()[job_rank];
  return absl::StrCat(
      "rank ", rank, " (", peer.host, ", pid ", peer.pid,
      job_rank == rank ? "" : absl::StrCat(", rank ", job_rank, " of the job"),
      ")");
}

// What is known of a rank that has not come.
std::string ControlPlane::HubSays(const GroupAtHub& group,
                                  const Inquiry& inquiry, int rank) {
  const int job_rank = group.info.job_ranks[rank];
  const auto position = inquiry.positions.find(rank);
  const bool answers =
      position != inquiry.positions.end() && inquiry.asked.count(rank) == 0;
  std::string text = HubDescribe(group, rank);
  if (!answers) return absl::StrCat(text, " ", DescribeSilence(job_rank));
  const std::string& last = position->second.last;
  absl::StrAppend(&text, last.empty() ? " has issued nothing" : " last issued ",
                  last);
  if (!position->second.waits_what.empty()) {
    absl::StrAppend(&text, ", and waits for ", position->second.waits_what);
  }
  return text;
}

void ControlPlane::HubJudge(const PlaceId& place, int newest) {
  const auto found = inquiries_.find(place);
  const auto at = hub_groups_.find(place.group);
  if (found == inquiries_.end() || at == hub_groups_.end()) return;
  Inquiry& inquiry = found->second;
  const GroupAtHub& group = at->second;
  std::vector<int> missing, behind;
  int first = -1;  // the lowest rank whose operation is known
  for (const int rank : Concerned(group.info, place.lane)) {
    const auto position = inquiry.positions.find(rank);
    if (position == inquiry.positions.end() || !position->second.here) {
      if (group.DidItsPart(rank, place)) continue;
      const bool waits =
          position != inquiry.positions.end() && position->second.behind;
      (waits ? behind : missing).push_back(rank);
      continue;
    }
    const Position& there = position->second;
    if (there.what.empty()) continue;  // too long ago
    if (first < 0) first = rank;
    const Position& other = inquiry.positions[first];
    if (there.fingerprint == other.fingerprint) continue;
    return HubFail(
        place.group,
        absl::FailedPreconditionError(absl::StrCat(
            "the ranks of group '", group.info.name, "' differ",
            place.lane.collective()
                ? absl::StrCat(" at operation #", place.number)
                : "",
            ": ", HubDescribe(group, first), " issued ", other.what, ", and ",
            HubDescribe(group, rank), " issued ", there.what,
            place.lane.collective() ? HubSuspects(group, first, rank) : "")));
  }
  if (newest >= 0 && HubAllToAllDiffers(place, newest)) return;
  if (HubDeadlock(place)) return;
  // Those that wait for an earlier operation are not the ones to blame for it.
  if (missing.empty()) missing = behind;
  // What a rank sends to itself waits for that rank.
  if (!place.lane.collective() && place.lane.from == place.lane.to) {
    missing.assign(1, place.lane.from);
  }
  const bool decided =
      inquiry.asked.empty() || ran_ - inquiry.asked_at > patience_.answers;
  if (!decided) return;
  // Of those that came, one that says nothing any more may be stopped.
  std::vector<int> described = missing;
  if (missing.empty()) {
    described.assign(inquiry.asked.begin(), inquiry.asked.end());
  }
  std::string who;
  for (size_t i = 0; i < described.size() && i < kMostDescribed; ++i) {
    absl::StrAppend(&who, "; ", HubSays(group, inquiry, described[i]));
  }
  if (inquiry.expired) {
    const std::string time = absl::FormatDuration(inquiry.deadline);
    if (missing.empty() && who.empty()) {
      who = "; its data does not get through, or is slow";
    }
    return HubFail(
        place.group,
        absl::DeadlineExceededError(absl::StrCat(
            inquiry.what, ": ",
            missing.empty()
                ? absl::StrCat("all ranks came, and it was not done within ",
                               time)
                : absl::StrCat(Plural(missing), " did not come within ", time),
            who)));
  }
  if (inquiry.told_slow) return;
  inquiry.told_slow = true;
  const std::string text = absl::StrCat(
      inquiry.what, " is slow: ",
      missing.empty() ? "all ranks have come, and its data is on the way"
                      : absl::StrCat(Plural(missing), " have not come yet"),
      who);
  HubTell(group, Pack(Message::kSlow)
                     .Text(place.group)
                     .Text(absl::string_view(text).substr(0, kLongestText))
                     .Done());
}

// Whether what `rank` gives and takes in an all-to-all is not what the others
// take and give. Then the group has failed.
bool ControlPlane::HubAllToAllDiffers(const PlaceId& place, int rank) {
  Inquiry& inquiry = inquiries_[place];
  const GroupAtHub& group = hub_groups_[place.group];
  const auto differs = [&](int from, int to) {
    const std::vector<int64_t>& gives = inquiry.positions[from].send_counts;
    const std::vector<int64_t>& takes = inquiry.positions[to].recv_counts;
    const auto i = static_cast<size_t>(to), j = static_cast<size_t>(from);
    if (i >= gives.size() || j >= takes.size() || gives[i] == takes[j]) {
      return false;
    }
    HubFail(place.group,
            absl::FailedPreconditionError(absl::StrCat(
                inquiry.what, ": ", HubDescribe(group, from), " sends ",
                gives[i], " elements to ", HubDescribe(group, to),
                ", which takes ", takes[j])));
    return true;
  };
  if (inquiry.positions[rank].send_counts.empty()) return false;
  std::vector<int> others;
  for (const auto& [other, position] : inquiry.positions) {
    if (!position.send_counts.empty()) others.push_back(other);
  }
  for (const int other : others) {
    if (differs(rank, other) || differs(other, rank)) return true;
  }
  return false;
}

// Ranks that wait for each other in several groups: a rank that is missing here
// waits in another operation, for which a rank is missing that waits ... here.
// Each of them was found missing while it waited, and can't have gone on since,
// unless its group fails: so answers of different times do for this.
bool ControlPlane::HubDeadlock(const PlaceId& start) {
  std::vector<PlaceId> path;
  std::string text;
  PlaceId place = start;
  do {
    if (std::find(path.begin(), path.end(), place) != path.end()) return false;
    const auto inquiry = inquiries_.find(place);
    const auto group = hub_groups_.find(place.group);
    if (inquiry == inquiries_.end() || group == hub_groups_.end() ||
        !group->second.failure.ok()) {
      return false;
    }
    path.push_back(place);
    PlaceId next;
    for (const auto& [rank, position] : inquiry->second.positions) {
      if (position.here || position.waits.group.empty()) continue;
      next = position.waits;
      absl::StrAppend(&text, text.empty() ? "" : "; ", inquiry->second.what,
                      " waits for ", HubDescribe(group->second, rank),
                      ", which waits for ", position.waits_what);
      break;
    }
    if (next.group.empty()) return false;
    place = next;
  } while (!(place == start));
  if (path.size() < 2) return false;
  const absl::Status why = absl::FailedPreconditionError(absl::StrCat(
      "ranks use groups in different orders, and wait for each other: ", text));
  for (const PlaceId& each : path) HubFail(each.group, why);
  return true;
}

}  // namespace lockstep::internal_collective
