#include "lockstep/collective/engine/pair_lane.h"

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/operation.h"

namespace lockstep::internal_collective {

void PairLane::Issue(LaneGroup& group,
                     const std::shared_ptr<IssuedWork>& work) {
  const Operation& op = work->op;
  const int64_t count = sends_ ? op.in.count : op.out.count;
  const uint64_t tag =
      DigestOf(absl::StrCat(group.options.key, "\n", id().from, ">", id().to,
                            "\n", issued() + 1, "\n", count, " ",
                            Name(op.dtype), "\n", op.name))
          .low;
  Enter(group, work, tag);
  Want(group);
}

void PairLane::EnsureThread(LaneGroup& group) {
  if (to_itself() || has_thread() ||
      group.phase == LaneGroup::Phase::kStopping) {
    return;
  }
  StartThread(group);
}

absl::Status PairLane::Transfer(const Turn& turn) {
  const Operation& op = turn.work->op;
  return sends_ ? transport_.Send(op.to, op.in, turn.fingerprint)
                : transport_.Recv(op.from, op.out, turn.fingerprint);
}

void PairLane::MoveToSelfUnlocking(LaneGroup& group, PairLane& sends,
                                   PairLane& recvs) {
  while (group.failure.ok() && !sends.empty() && !recvs.empty()) {
    if (!MoveFirstUnlocking(group, sends, recvs)) return;
  }
}

bool PairLane::MoveFirstUnlocking(LaneGroup& group, PairLane& sends,
                                  PairLane& recvs) {
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
      lane->FinishRun(group);
    } else if (!group.failure.ok()) {
      lane->FailFirst(group);
    }
  }
  if (moved.ok() || !group.failure.ok()) return true;
  return fail(Annotate(
      moved, absl::StrCat(group.Describe(from), " on rank ", group.rank)));
}

}  // namespace lockstep::internal_collective
