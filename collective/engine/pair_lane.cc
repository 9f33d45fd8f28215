#include "lockstep/collective/engine/pair_lane.h"

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/engine/group.h"
#include "lockstep/collective/operation.h"

namespace lockstep::internal_collective {

void PairLane::Begin(const Turn& /*turn*/) {
  if (id().from != id().to) return Want();
  group_.mutex.AssertHeld();
  auto& other =
      static_cast<PairLane&>(group_.PairWith(group_.rank, /*sends=*/!sends_));
  MoveToSelf(sends_ ? *this : other, sends_ ? other : *this);
}

void PairLane::EnsureThread() {
  group_.mutex.AssertHeld();
  const bool needs_one = id().from != id().to && !has_thread() &&
                         group_.phase != Group::Phase::kStopping;
  if (needs_one) StartThread();
}

absl::Status PairLane::Transfer(const Turn& turn) {
  const Operation& op = turn.work->op;
  return sends_ ? transport_.Send(op.to, op.in, turn.fingerprint)
                : transport_.Recv(op.from, op.out, turn.fingerprint);
}

void PairLane::MoveToSelf(PairLane& sends, PairLane& recvs) {
  Group& group = sends.group_;
  group.mutex.AssertHeld();
  while (group.failure.ok() && !sends.empty() && !recvs.empty()) {
    if (!MoveFirst(sends, recvs)) return;
  }
}

bool PairLane::MoveFirst(PairLane& sends, PairLane& recvs) {
  Group& group = sends.group_;
  group.mutex.AssertHeld();
  const Turn send = sends.front();
  const Turn recv = recvs.front();
  const Operation& from = send.work->op;
  const Operation& to = recv.work->op;
  const auto fail = [&group](const absl::Status& why) {
    group.control.Fail(group.options.key, group.Blamed(why));
    return false;
  };
  if (send.fingerprint != recv.fingerprint) {
    return fail(absl::FailedPreconditionError(absl::StrCat(
        "rank ", group.rank, " of group '", group.options.name, "' issued ",
        from.Describe(), " to itself, and ", to.Describe(), " from itself")));
  }
  sends.MoveTo(State::kRunning);
  recvs.MoveTo(State::kRunning);
  absl::Status moved;
  {
    const MutexUnlock unlock(group.mutex);
    moved = CatchAll("the transport",
                     [&] { return sends.transport_.Move(from.in, to.out); });
  }
  group.changed.NotifyAll();
  for (PairLane* const lane : {&sends, &recvs}) {
    lane->MoveTo(State::kIdle);
    if (moved.ok()) {
      lane->Finish();
    } else if (!group.failure.ok()) {
      lane->FailFirst();
    }
  }
  if (moved.ok() || !group.failure.ok()) return true;
  return fail(Annotate(
      moved, absl::StrCat(group.Describe(from), " on rank ", group.rank)));
}

}  // namespace lockstep::internal_collective
