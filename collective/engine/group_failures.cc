// This file has the parts of Group that watch operations, fail the group, and
// leave it.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/end_process.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/engine/group.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {
namespace {

Position PositionOf(const Turn& turn) {
  Position position;
  position.here = true;
  const Operation& op = turn.work->op;
  position.what = op.Describe();
  position.fingerprint = turn.fingerprint;
  if (op.kind == OpKind::kAllToAll) {
    position.send_counts = op.send_counts;
    position.recv_counts = op.recv_counts;
  }
  return position;
}

}  // namespace

// ---- Who is to blame.

verdicts::Party Group::PartyOf(int each) const {
  return {absl::StrCat("rank ", each),
          control.peers()[(*options.job_ranks)[each]].ForBlame()};
}

verdicts::Party Group::Self() const {
  verdicts::Party self = PartyOf(rank);
  if (last_ != nullptr) self.rank.last = Describe(last_->op);
  return self;
}

absl::Status Group::Blamed(const absl::Status& why) const {
  return WithBlame(why, BlameFor(why, PartyOf(rank).rank));
}

absl::Status Group::Broke(const absl::Status& why) const {
  return verdicts::Broke(options.name, PartyOf(rank), why);
}

// ---- Failing.

void Group::Abort(const absl::Status& why) {
  {
    MutexLock lock(mutex);
    const absl::Status aborted = verdicts::Aborted(options.name, Self(), why);
    control.Fail(options.key, aborted);
    // This rank fails in any case, whatever rank 0 decides.
    if (failure.ok()) awaits_verdict_ = true;
    Fail(aborted);
  }
  control.Flush();
}

void Group::FailOfItself(const absl::Status& why) {
  if (!failure.ok()) return;
  control.Fail(options.key, why);
  Fail(why);
}

void Group::OnFailure(const absl::Status& why, uint64_t after) {
  MutexLock lock(mutex);
  // Another rank may have aborted the group at the same time.
  if (std::exchange(awaits_verdict_, false)) {
    failure = why;
    changed.NotifyAll();
  }
  FailAfter(why, after);
}

void Group::FailAfter(const absl::Status& why, uint64_t after) {
  coming_ = {why, after, SteadyNow()};
  // A turn that the device is done with ends well, so the lane's thread looks
  // for such turns before the group fails.
  if (connected && device_ != nullptr) device_->Want();
  FailIfDue();
}

void Group::FailIfDue() {
  if (coming_.why.ok() || CollectivesDone() < coming_.after) return;
  const bool known =
      !connected || device_ == nullptr || device_->Knows(coming_.since);
  if (known) FailAsComing();
}

void Group::FailAsComing() {
  if (failure.ok() && coming_.after > 0) {
    // Ranks that go on may wait for this rank in other lanes. They are told
    // that it does nothing more there.
    control.Leave(options.key, Counts(/*done_only=*/true));
  }
  Fail(coming_.why);
}

void Group::Fail(const absl::Status& why) {
  if (!failure.ok()) return;
  failure = why;
  failed_at = SteadyNow();
  bool idle = connected && phase != Phase::kOpen;
  ForEachLane([&idle](Lane& lane) {
    idle = idle && lane.empty();
    lane.Fail();
  });
  // This rank's data may still be on its way to other ranks when its device has
  // nothing left to do, so Cancel could take it from them. If this rank leaves
  // an idle group, the transport's destructor lets it arrive.
  const bool in_order = idle && device_ != nullptr;
  if (transport_ != nullptr && !in_order) {
    if (device_ != nullptr) device_->Cancel();
    transport_->Cancel();
  }
  changed.NotifyAll();
}

void Group::OnLeft(int left, const LaneCounts& counts) {
  MutexLock lock(mutex);
  left_[left] = counts;
  ForEachLane([this](const Lane& lane) {
    mutex.AssertHeld();
    FailIfLeft(lane);
  });
}

void Group::FailIfLeft(const Lane& lane) {
  if (lane.empty()) return;
  const LaneId& id = lane.id();
  for (const auto& [left, counts] : left_) {
    if (left == rank ||
        (!id.collective() && left != id.from && left != id.to)) {
      continue;
    }
    const auto found = counts.find(id);
    const uint64_t count = found == counts.end() ? 0 : found->second;
    // The operations in which the rank takes part end first.
    if (lane.front().number <= count) continue;
    const Operation& op = lane.front().work->op;
    // The rank may have left because of the failure that is coming.
    const absl::Status why =
        !coming_.why.ok() ? coming_.why
                          : verdicts::HasLeftGroup({Describe(op), op.sequence},
                                                   PartyOf(left));
    return control.Fail(options.key, why, CollectivesDone());
  }
}

// ---- Watching.

void Group::OnTick() {
  const SteadyTime now = SteadyNow();
  MutexLock lock(mutex);
  FailIfDue();
  if (!failure.ok()) return;
  // Ranks of one process do operations before all have joined.
  bool idle = true;
  ForEachLane([&idle](const Lane& lane) { idle = idle && lane.empty(); });
  if (!connected && (idle || exchange_ == nullptr)) return WatchConnecting(now);
  ForEachLane([this, now](Lane& lane) {
    mutex.AssertHeld();
    Watch(lane, now);
  });
}

void Group::WatchConnecting(SteadyTime now) {
  if (!connecting_.error().ok() && !coming_.why.ok()) {
    // The failure that is coming waits for operations that will never be done.
    return Fail(coming_.why);
  }
  Late late;
  late.turn = {options.key, {}, 0};
  late.what = absl::StrCat("making the group '", options.name, "'");
  late.position.here = true;
  late.expired = Passed(begun_, options.deadline, now);
  late.deadline = options.deadline;
  const Watchdog::Orders orders =
      AskWatchdog(connecting_, late, /*failure_is_coming=*/false, now);
  absl::Status error;
  if (orders.report_error) {
    const bool may_be_data = absl::IsUnavailable(connecting_.error()) ||
                             absl::IsDeadlineExceeded(connecting_.error());
    error = Blaming(may_be_data ? Blame::Cause::kData : Blame::Cause::kUnknown,
                    connecting_.error());
    Blame blame = *BlameOf(error);
    blame.operation = late.what;
    blame.has_begun = false;
    error = WithBlame(error, blame);
  }
  Follow(orders, error, late);
}

void Group::Watch(Lane& lane, SteadyTime now) {
  if (lane.empty()) return;
  now = lane.KnownAsOf(now);
  lane.Want();  // for posted operations that nobody waits for
  const Turn& soonest = lane.Soonest();
  Late late;
  late.turn = {options.key, lane.id(), lane.front().number};
  late.expired = now >= soonest.work->expires;
  const Operation& op = (late.expired ? soonest : lane.front()).work->op;
  late.what = Describe(op);
  late.number = op.sequence;
  late.deadline = soonest.work->op.deadline;
  const Watchdog::Orders orders =
      AskWatchdog(lane.watchdog(), late, !coming_.why.ok(), now);
  absl::Status error;
  if (orders.report_error) {
    error = verdicts::TransportFailed({late.what, late.number}, rank,
                                      lane.watchdog().error());
  }
  if (orders.report_late) {
    late.position = PositionOf(lane.front());
    // The marks tell rank 0 that a device may have done the operation.
    SendMarks();
  }
  Follow(orders, error, late);
}

// If this rank was held up, the verdict may have arrived, but has not been
// read. So the wait for it is measured on the control plane's clock, which does
// not count that time.
Watchdog::Orders Group::AskWatchdog(Watchdog& watchdog, const Late& late,
                                    bool failure_is_coming,
                                    SteadyTime now) const {
  Watchdog::Tick tick;
  tick.now = now;
  tick.expired = late.expired;
  tick.failure_is_coming = failure_is_coming;
  // If this is rank 0, it still decides after it was held up.
  tick.judged_here = watchdog.reported() == Watchdog::Reported::kExpired &&
                     control.Judges(late.turn);
  tick.ran = control.ran();
  return watchdog.OnTick(tick);
}

void Group::Follow(const Watchdog::Orders& orders, const absl::Status& error,
                   const Late& late) {
  if (orders.decide_alone) return DecideAlone(late);
  if (orders.fail_as_coming) return FailAsComing();
  if (orders.report_error) control.FailByHearsay(options.key, error);
  if (orders.report_late) control.ReportLate(late);
}

void Group::DecideAlone(const Late& late) {
  Fail(verdicts::MissingIsNotKnown({late.what, late.number}, late.deadline,
                                   control.SilentHub()));
}

void Group::OnSlow(const std::string& what) {
  MutexLock lock(slow_mutex_);
  if (options.on_slow == nullptr || muted_) return;
  options.on_slow->WriteLine(what, this);
}

// ---- What the control plane wants to know.

const Lane* Group::Find(const LaneId& id) const {
  if (id.collective()) return collectives_.get();
  // This rank is the sender in lanes that begin at it.
  const auto found = pairs_.find({id, id.from == rank});
  return found == pairs_.end() ? nullptr : found->second.get();
}

Position Group::Where(const LaneId& id, uint64_t number) {
  MutexLock lock(mutex);
  Position position;
  // All take part in making the group, which has number 0.
  position.here = id.collective() && number == 0;
  if (const Lane* const lane = Find(id)) {
    const Turn* const turn = lane->Find(number);
    if (turn != nullptr) position = PositionOf(*turn);
    position.here = number <= lane->issued();
    position.behind = !lane->empty() && lane->front().number < number;
  }
  if (last_ != nullptr) position.last = Describe(last_->op);
  return position;
}

LaneCounts Group::Counts(bool done_only) {
  LaneCounts counts;
  ForEachLane([&counts, done_only](const Lane& lane) {
    counts[lane.id()] = done_only ? lane.done() : lane.issued();
  });
  return counts;
}

LaneCounts Group::Done() {
  MutexLock lock(mutex);
  if (!connected) return {};  // not even its part in making the group
  if (device_ != nullptr) device_->CatchUp();
  return Counts(/*done_only=*/true);
}

void Group::SendMarks() {
  if (device_ == nullptr) return;
  control.SendMarks(options.key, device_->TakeMarks());
}

std::vector<Mark> Group::TakeMarks(std::string& key) {
  key = options.key;
  MutexLock lock(mutex);
  return device_ == nullptr ? std::vector<Mark>() : device_->TakeMarks();
}

bool Group::Lives() {
  MutexLock lock(mutex);
  return failure.ok() && phase == Phase::kOpen;
}

uint64_t Group::OnlyThread() {
  MutexLock lock(mutex);
  return only_thread_ == kSeveral ? 0 : only_thread_;
}

bool Group::Waits(uint64_t thread, TurnId& waits, std::string& what) {
  MutexLock lock(mutex);
  bool found = false;
  ForEachLane([&](const Lane& lane) {
    for (const Turn& turn : lane.turns()) {
      if (found || turn.work->waiter != thread) continue;
      found = true;
      waits = {options.key, lane.id(), lane.front().number};
      what = Describe(lane.front().work->op);
    }
  });
  return found;
}

// ---- Leaving.

absl::Status Group::Close() {
  absl::Status result;
  LaneCounts counts;
  {
    MutexLock lock(mutex);
    if (phase != Phase::kOpen) return failure;
    phase = Phase::kClosed;
    SendMarks();
    // After a failure, no rank does the operations that are not done yet.
    counts = Counts(/*done_only=*/!failure.ok());
    control.Leave(options.key, counts);
    // The lane also does the collectives that nobody waits for.
    collectives_->Want();
    const SteadyTime until = After(timing.abort);
    while (awaits_verdict_ && !changed.WaitUntil(mutex, until)) {
    }
    result = failure;
  }
  if (exchange_ != nullptr) exchange_->Leave(rank, counts);
  control.Flush();
  return result;
}

void Group::Shutdown() {
  RunOrEnd("leaving a group", [this] { ShutDownOrThrow(); });
}

void Group::ShutDownOrThrow() {
  {
    MutexLock lock(slow_mutex_);
    muted_ = true;
  }
  if (options.on_slow != nullptr) options.on_slow->Drop(this);
  {
    MutexLock lock(mutex);
    phase = Phase::kClosed;
    SayFarewell();
    Fail(verdicts::HasDropped(options.name, Self()));
    phase = Phase::kStopping;
    changed.NotifyAll();
    ForEachLane([](Lane& lane) { lane.Wake(); });
    // Callers that wait for an operation may be doing it.
    ForEachLane([](Lane& lane) { lane.AwaitIdle(); });
    while (outside_ > 0) changed.Wait(mutex);
  }
  if (exchange_ != nullptr) exchange_->Leave(rank, Done());
  // No thread can be started any more.
  const auto join = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    ForEachLane([](Lane& lane) { lane.JoinThread(); });
  };
  join();
  if (device_ != nullptr) device_->Close();
  control.Detach(options.key);
  transport_ = nullptr;
  MutexLock lock(mutex);
  ForEachLane([](Lane& lane) { lane.ForgetPast(); });
  last_ = nullptr;
}

void Group::SayFarewell() {
  if (connected && device_ != nullptr) device_->CatchUp();
  const LaneCounts counts = Counts(/*done_only=*/true);
  SendMarks();
  if (!connected) {
    // The others can't connect without this rank.
    control.Fail(options.key,
                 verdicts::LeftBeforeMaking(options.name, PartyOf(rank)));
  }
  // A group that is not connected has done no operation here.
  control.Leave(options.key, connected ? counts : LaneCounts());
}

}  // namespace lockstep::internal_collective
