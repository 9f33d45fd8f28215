#include "lockstep/collective/local/group.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>  // NOLINT: ranks are told apart by their threads
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/perform.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_local {
namespace {

// A rank that has waited for this long may wait for itself.
constexpr absl::Duration kSlow = absl::Seconds(1);

std::string NameOf(int rank) { return absl::StrCat("rank ", rank); }

// Lists an operation among those for which the ranks of a family wait, from
// Enter to its end.
// Requires: the family's mutex is held.
// Thread-safety: thread-compatible.
class Listing {
 public:
  Listing(Family& family, int place, LocalWork& work)
      : family_(family), place_(place), work_(work), at_(family.slow.end()) {}
  ~Listing() {
    if (at_ != family_.slow.end()) family_.slow.erase(at_);
  }
  Listing(const Listing&) = delete;
  Listing& operator=(const Listing&) = delete;

  void Enter() {
    if (at_ != family_.slow.end()) return;
    at_ = family_.slow.emplace(place_, &work_);
  }

 private:
  Family& family_;
  const int place_;
  LocalWork& work_;
  std::multimap<int, LocalWork*>::iterator at_;
};

}  // namespace

// ---- How ranks meet.

verdicts::Subject Group::SubjectOf(const LocalWork& work) const {
  return {work.op.DescribeIn(name_), work.op.sequence};
}

verdicts::Party Group::PartyOf(int rank) const {
  verdicts::Party party = {NameOf(rank), {}};
  party.rank.rank = places_[rank];
  party.rank.last = last_[rank];
  return party;
}

void Group::End(LocalWork& work) {
  work.open = 0;
  work.log->End(work.ticket, work.result.code());
  changed_.NotifyAll();
}

// Calls `function` with each operation that has not ended.
template <typename Function>
void Group::ForEachPending(Function function) const {
  for (const Meeting& meeting : meetings_) {
    for (const WorkPtr& work : meeting.works) {
      if (work != nullptr) function(work);
    }
  }
  for (const auto& [ends, pair] : pairs_) {
    for (const WorkPtr& work : pair.sends) function(work);
    for (const WorkPtr& work : pair.recvs) function(work);
  }
}

// Fails the group for good. Pending operations end, and later ones are refused.
void Group::Fail(const absl::Status& why) {
  if (!failure_.ok()) return;
  failure_ = why;
  ForEachPending([&](const WorkPtr& work)
                     ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                       work->result = failure_;
                       End(*work);
                     });
  meetings_.clear();
  pairs_.clear();
  FailSplits(why, -1);
}

// Fails the groups that were split off and can't become complete: those that
// wait for `member`, or for any rank if that is -1.
void Group::FailSplits(const absl::Status& why, int member) {
  for (auto& [name, split] : splits_) {
    if (split.group == nullptr) continue;
    const bool waits =
        member < 0 || (!split.joined[member] &&
                       std::find(split.members.begin(), split.members.end(),
                                 member) != split.members.end());
    if (waits) FailOther(*split.group, why);
  }
}

absl::StatusOr<Work> Group::Start(int rank, Operation op,
                                  std::shared_ptr<OperationLog> log) {
  auto work = std::make_shared<LocalWork>(shared_from_this(), rank,
                                          std::move(op), std::move(log));
  MutexLock lock(mutex_);
  ExpireOverdue(SteadyNow());
  LOCKSTEP_RETURN_IF_ERROR(failure_);
  if (left_[rank]) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", rank, " has left the group '", name_, "' by Close"));
  }
  UsesAlone(rank);
  work->ticket = work->log->Begin(work->op);
  last_[rank] = SubjectOf(*work).operation;
  const int to = work->op.to, from = work->op.from;
  if (work->op.collective()) {
    Meet(work);
    Settle();
  } else {
    work->open = (to >= 0) + (from >= 0);
    if (to >= 0) pairs_[{rank, to}].sends.push_back(work);
    if (from >= 0) pairs_[{from, rank}].recvs.push_back(work);
    if (to >= 0) Settle(rank, to);
    if (from >= 0) Settle(from, rank);
  }
  // A rank that waits may have to wake up earlier for this deadline.
  changed_.NotifyAll();
  LOCKSTEP_RETURN_IF_ERROR(work->result);
  return Work(std::move(work));
}

void Group::Meet(const WorkPtr& work) {
  const uint64_t place = work->op.sequence - done_ - 1;
  while (meetings_.size() <= place) {
    meetings_.emplace_back().works.resize(size_);
  }
  Meeting& meeting = meetings_[place];
  const uint64_t fingerprint = work->op.Fingerprint(name_);
  if (meeting.arrived == 0) {
    meeting.first = work->rank;
    meeting.fingerprint = fingerprint;
  } else if (fingerprint != meeting.fingerprint) {
    const WorkPtr other = meeting.works[meeting.first];
    meeting.works[work->rank] = work;
    const uint64_t number = work->op.sequence;
    return Fail(verdicts::OperationsDiffer(
        name_, number, number,
        {{PartyOf(other->rank), other->op.Describe()},
         {PartyOf(work->rank), work->op.Describe()}},
        /*suspect=*/""));
  }
  meeting.works[work->rank] = work;
  ++meeting.arrived;
}

void Group::HasLeft(const LocalWork& needs, int rank) {
  Fail(verdicts::HasLeftGroup(SubjectOf(needs), PartyOf(rank)));
}

// Does the operations for which all ranks are there. Then looks only at the
// first one of the others, since a rank that has left is not to blame for
// operations that come later.
void Group::Settle() {
  while (failure_.ok() && !meetings_.empty()) {
    Meeting& meeting = meetings_.front();
    if (meeting.arrived < size_) {
      for (int rank = 0; rank < size_ && meeting.arrived > 0; ++rank) {
        if (left_[rank] && meeting.works[rank] == nullptr) {
          return HasLeft(*meeting.works[meeting.first], rank);
        }
      }
      return;
    }
    std::vector<const Operation*> ops;
    for (const WorkPtr& each : meeting.works) ops.push_back(&each->op);
    const absl::Status performed = Perform(ops);
    if (!performed.ok()) {
      return Fail(internal_collective::Blaming(
          Blame::Cause::kDiffer,
          Annotate(performed, SubjectOf(*meeting.works[0]).operation)));
    }
    for (const WorkPtr& each : meeting.works) End(*each);
    meetings_.pop_front();
    ++done_;
  }
}

// Does the messages for which both the sender and the receiver are there.
void Group::Settle(int from, int to) {
  while (failure_.ok()) {
    PairQueues& pair = pairs_[{from, to}];
    if (pair.sends.empty() || pair.recvs.empty()) {
      // HasLeft also removes `pair`, so this returns.
      if (!pair.sends.empty() && left_[to]) {
        HasLeft(*pair.sends.front(), to);
      } else if (!pair.recvs.empty() && left_[from]) {
        HasLeft(*pair.recvs.front(), from);
      }
      return;
    }
    const WorkPtr send = pair.sends.front();
    const WorkPtr recv = pair.recvs.front();
    if (send->op.in.count != recv->op.out.count ||
        send->op.dtype != recv->op.dtype || send->op.name != recv->op.name) {
      return Fail(verdicts::SendAndRecvDiffer(
          name_, {PartyOf(from), send->op.Describe()},
          {PartyOf(to), recv->op.Describe()}));
    }
    if (send->op.in.count > 0) {
      std::memmove(recv->op.out.data, send->op.in.data,
                   send->op.in.count * SizeOf(send->op.in.dtype));
    }
    pair.sends.pop_front();
    pair.recvs.pop_front();
    for (const WorkPtr& work : {send, recv}) {
      if (--work->open == 0) End(*work);
    }
  }
}

// ---- How they fail.

// Returns the pending operation that expires first, or nullptr.
WorkPtr Group::Soonest() const {
  WorkPtr soonest;
  ForEachPending([&soonest](const WorkPtr& work) {
    if (soonest == nullptr || work->expires < soonest->expires) soonest = work;
  });
  return soonest;
}

void Group::ExpireOverdue(SteadyTime now) {
  const WorkPtr soonest = Soonest();
  if (soonest != nullptr && now >= soonest->expires) Expire(*soonest);
}

// Returns the ranks that keep an operation from ending.
std::vector<int> Group::Missing(const LocalWork& work) {
  std::vector<int> missing;
  if (work.op.collective()) {
    const Meeting& meeting = meetings_.front();
    for (int rank = 0; rank < size_; ++rank) {
      if (meeting.works[rank] == nullptr) missing.push_back(rank);
    }
    return missing;
  }
  const auto among = [&work](const std::deque<WorkPtr>& works) {
    return std::any_of(works.begin(), works.end(), [&work](const auto& each) {
      return each.get() == &work;
    });
  };
  if (work.op.to >= 0 && among(pairs_[{work.rank, work.op.to}].sends)) {
    missing.push_back(work.op.to);
  }
  if (work.op.from >= 0 && among(pairs_[{work.op.from, work.rank}].recvs) &&
      (missing.empty() || missing[0] != work.op.from)) {
    missing.push_back(work.op.from);
  }
  return missing;
}

void Group::Expire(const LocalWork& work) {
  const std::vector<int> missing = Missing(work);
  std::vector<verdicts::Missing> described;
  for (const int rank : missing) {
    if (described.size() == Blame::kMostRanks) break;
    described.push_back({PartyOf(rank), verdicts::DescribeLastIssued(
                                            NameOf(rank), last_[rank])});
  }
  Fail(verdicts::DidNotCome(
      SubjectOf(work), verdicts::ListRanks(missing), work.op.deadline,
      described, static_cast<int64_t>(missing.size() - described.size())));
}

void Group::Abort(int rank, const absl::Status& why) {
  MutexLock lock(mutex_);
  Fail(verdicts::Aborted(name_, PartyOf(rank), why));
}

void Group::GiveUp(int rank, const absl::Status& why) noexcept {
  MutexLock lock(mutex_);
  // Without memory for the blame, the group fails without it.
  Fail(CatchAll("giving up", [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return verdicts::Broke(name_, PartyOf(rank), why);
  }));
}

absl::Status Group::Leave(int rank) {
  MutexLock lock(mutex_);
  absl::Status before = failure_;
  if (!left_[rank]) {
    left_[rank] = true;
    Settle();
    std::vector<std::pair<int, int>> pairs;
    for (const auto& [ends, pair] : pairs_) {
      if (ends.first == rank || ends.second == rank) pairs.push_back(ends);
    }
    for (const auto& [from, to] : pairs) Settle(from, to);
    FailSplits(verdicts::LeftBeforeJoining(name_, PartyOf(rank)), rank);
  }
  return before;
}

void Group::Drop(int rank) {
  Leave(rank).IgnoreError();
  MutexLock lock(mutex_);
  bool any = false;
  ForEachPending([&](const WorkPtr& work) { any |= work->rank == rank; });
  if (!any) return;
  Fail(verdicts::HasDropped(name_, PartyOf(rank)));
}

absl::StatusOr<std::shared_ptr<Group>> Group::Child(
    const std::string& name, const std::vector<int>& members, int rank) {
  MutexLock lock(mutex_);
  LOCKSTEP_RETURN_IF_ERROR(failure_);
  if (left_[rank]) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", rank, " has left the group '", name_, "' by Close"));
  }
  UsesAlone(rank);
  Split& split = splits_[name];
  if (split.members.empty()) {
    split.members = members;
    split.first = rank;
    split.joined.assign(size_, false);
    split.missing = members.size();
    std::vector<int> places;
    for (const int member : members) places.push_back(places_[member]);
    split.group =
        std::make_shared<Group>(family_, name, std::move(places), deadline_);
  }
  if (split.group == nullptr || split.joined[rank]) {
    return absl::AlreadyExistsError(
        absl::StrCat("a group '", name, "' was split off the group '", name_,
                     "' already; names are used once"));
  }
  if (split.members != members) {
    Fail(verdicts::PropertiesDiffer(
        "members", name, {PartyOf(rank), absl::StrJoin(members, ", ")},
        {PartyOf(split.first), absl::StrJoin(split.members, ", ")}));
    return failure_;
  }
  for (const int member : members) {
    if (left_[member] && !split.joined[member]) {
      return verdicts::CannotJoinAnyMore(name_, PartyOf(member), name);
    }
  }
  split.joined[rank] = true;
  const std::shared_ptr<Group> group = split.group;
  if (--split.missing == 0) split.group = nullptr;
  return group;
}

// ---- Waiting.

bool Group::WaitUntil(LocalWork& work, absl::Time until) {
  MutexLock lock(mutex_);
  const SteadyTime end = After(until - absl::Now());
  const bool may_be_slow =
      UsesAlone(work.rank) && until == absl::InfiniteFuture();
  SteadyTime look = may_be_slow ? After(kSlow) : end;
  Listing listing(*family_, places_[work.rank], work);
  while (work.open > 0) {
    const SteadyTime now = SteadyNow();
    ExpireOverdue(now);
    if (work.open == 0 || now >= end) break;
    if (now >= look) {
      listing.Enter();
      LookForDeadlock(work);
      look = After(kSlow);  // others may have gone on, and wait elsewhere
      continue;
    }
    changed_.WaitUntil(mutex_, std::min({end, look, Soonest()->expires}));
  }
  return work.open == 0;
}

// ---- Ranks that wait for each other in several groups.

// Returns whether this thread is the only one that has used `rank`, in any
// group.
bool Group::UsesAlone(int rank) {
  Family::User& user = family_->users[places_[rank]];
  const std::thread::id self = std::this_thread::get_id();
  if (user.thread == std::thread::id()) user.thread = self;
  user.several |= user.thread != self;
  return !user.several;
}

// Returns whether the last operation of `path` waits for the first, perhaps by
// way of others, which are then added. Leaves out the operations in `seen`,
// which do not.
bool Group::WaitsForFirst(std::vector<LocalWork*>& path,
                          std::set<LocalWork*>& seen) {
  const LocalWork& work = *path.back();
  for (const int missing : MissingOf(work)) {
    const int place = work.group->places_[missing];
    if (family_->users[place].several) continue;  // another thread may come
    const auto [first, last] = family_->slow.equal_range(place);
    for (auto next = first; next != last; ++next) {
      LocalWork* const waits = next->second;
      if (waits->open == 0) continue;  // its thread has not woken up yet
      if (waits == path.front()) return true;
      if (!seen.insert(waits).second) continue;
      path.push_back(waits);
      if (WaitsForFirst(path, seen)) return true;
      path.pop_back();
    }
  }
  return false;
}

void Group::LookForDeadlock(LocalWork& start) {
  std::vector<LocalWork*> path = {&start};
  std::set<LocalWork*> seen;
  if (!WaitsForFirst(path, seen)) return;
  std::vector<verdicts::WaitsFor> waits;
  for (size_t i = 0; i < path.size(); ++i) {
    const LocalWork& work = *path[i];
    const LocalWork& next = *path[(i + 1) % path.size()];
    const std::vector<int>& places = work.group->places_;
    const auto rank =
        std::find(places.begin(), places.end(), next.group->places_[next.rank]);
    verdicts::Party party = {NameOf(static_cast<int>(rank - places.begin())),
                             {}};
    party.rank.rank = *rank;
    waits.push_back({work.group->SubjectOf(work).operation, std::move(party),
                     next.group->SubjectOf(next).operation});
  }
  const absl::Status why = verdicts::Deadlock(waits);
  for (const LocalWork* const work : path) FailOther(*work->group, why);
}

bool Group::Done(const LocalWork& work) {
  MutexLock lock(mutex_);
  return work.open == 0;
}

absl::Status Group::Result(const LocalWork& work) {
  MutexLock lock(mutex_);
  return work.result;
}

LocalWork::LocalWork(std::shared_ptr<Group> group, int rank, Operation op,
                     std::shared_ptr<OperationLog> log)
    : group(std::move(group)),
      rank(rank),
      op(std::move(op)),
      expires(After(this->op.deadline)),
      log(std::move(log)) {}

// An exception while a rank waits fails the group, and so ends the wait.
bool LocalWork::WaitUntil(absl::Time until) {
  while (true) {
    const absl::StatusOr<bool> done =
        CatchAll("waiting for an operation", [&]() -> absl::StatusOr<bool> {
          return group->WaitUntil(*this, until);
        });
    if (done.ok()) return *done;
    group->GiveUp(rank, done.status());
  }
}
bool LocalWork::done() const { return group->Done(*this); }
absl::Status LocalWork::status() const { return group->Result(*this); }

}  // namespace lockstep::internal_local
